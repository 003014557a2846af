"""SeaweedFS, the S3 server that tests trust most: `weed mini`, which is all of its parts in one process."""

import json
from pathlib import Path

from servers import rclone
from servers.ports import free_port
from servers.process import Server
from servers.programs import installed

ACCESS_KEY = "testkey"
SECRET_KEY = "testsecret1234"
REGION = "us-east-1"
BUCKET = "test"
PUBLIC_BUCKET = "public"

IDENTITIES = [
    {
        "name": "tester",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    },
    {
        "name": "anonymous",
        "actions": [f"Read:{PUBLIC_BUCKET}", f"List:{PUBLIC_BUCKET}"],
    },
]


class SeaweedFS(Server):
    """Everything is allowed to the key; anybody may read and list the public bucket, and nothing else."""

    def __init__(self, folder):
        super().__init__(folder)
        self.data = self.folder / "data"
        self.data.mkdir()
        self.identities = self.folder / "identities.json"
        self.identities.write_text(json.dumps({"identities": IDENTITIES}))
        # Its parts, which have to be where they were when it starts again.
        self.parts = {part: free_port() for part in ("master", "volume", "filer")}

    def find(self):
        return installed("bin/weed")

    def arguments(self):
        return [
            "mini",
            f"-dir={self.data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-admin.ui=false",
            "-webdav=false",
            f"-s3.port={self.port}",
            f"-s3.config={self.identities}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{part}.port={port}" for part, port in self.parts.items()),
        ]

    def prepare(self):
        for bucket in (BUCKET, PUBLIC_BUCKET):
            rclone.rclone(remote(self.url), "mkdir", f"remote:{bucket}")

    def variables(self):
        return {"ZARRFS_TEST_S3": self.url}

    def stop(self):
        super().stop()
        # It leaves a socket of each part and of the part's gRPC, whose port is 10,000 above.
        for port in (self.port, *self.parts.values()):
            for number in (port, port + 10_000):
                for socket in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                    socket.unlink(missing_ok=True)


def remote(endpoint):
    """Returns rclone's configuration of the server at `endpoint`."""
    return {
        "type": "s3",
        "provider": "SeaweedFS",
        "endpoint": endpoint,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }
