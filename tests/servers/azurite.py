"""Azurite, Azure's own emulator of its blob store."""

from servers import rclone
from servers.process import Server
from servers.programs import installed, on_path

CONTAINER = "test"
# Published by Azure for every emulator; no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azurite(Server):
    def find(self):
        self.script = installed("npm/node_modules/azurite/dist/src/blob/main.js")
        return on_path("node")

    def arguments(self):
        return [
            self.script,
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            self.port,
            "--location",
            self.folder / "data",
            "--silent",
            "--skipApiVersionCheck",
            "--disableTelemetry",
        ]

    def prepare(self):
        rclone.rclone(remote(self.url), "mkdir", f"remote:{CONTAINER}")

    def variables(self):
        return {"ZARRFS_TEST_AZURE": self.url}


def remote(endpoint):
    """Returns rclone's configuration of the server at `endpoint`."""
    return {
        "type": "azureblob",
        "account": ACCOUNT,
        "key": KEY,
        "endpoint": f"{endpoint}/{ACCOUNT}",
    }
