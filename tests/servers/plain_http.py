"""Python's own HTTP server: index pages, but no ranges and no ETags."""

import sys

from servers.process import Server


class PlainHttp(Server):
    def __init__(self, folder):
        super().__init__(folder)
        self.data = self.folder / "data"
        self.data.mkdir()

    def find(self):
        return sys.executable

    def arguments(self):
        place = ["--bind", "127.0.0.1", "--directory", self.data]
        return ["-m", "http.server", *place, self.port]

    def variables(self):
        return {"ZARRFS_TEST_HTTP": self.url, "ZARRFS_TEST_HTTP_DIR": str(self.data)}
