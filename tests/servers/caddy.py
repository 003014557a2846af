"""Caddy over a folder of this machine, with index pages."""

from servers.process import Server
from servers.programs import INSTALLED, on_path


class Caddy(Server):
    def __init__(self, folder):
        super().__init__(folder)
        self.data = self.folder / "data"
        self.data.mkdir()

    def find(self):
        return on_path("caddy", str(INSTALLED / "caddy/usr/bin"))

    def arguments(self):
        return ["file-server", "--browse", "--root", self.data, "--listen", f"127.0.0.1:{self.port}"]

    def variables(self):
        return {"ZARRFS_TEST_CADDY": self.url, "ZARRFS_TEST_CADDY_DIR": str(self.data)}
