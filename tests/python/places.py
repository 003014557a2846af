"""Stores on the servers that scripts/servers runs: how they get there, and how they are mounted from there.

Every test has a prefix of its own on a server, so that none sees what another has left. Nothing of the user's
own credentials is used.
"""

import os
import shutil
import uuid
from pathlib import Path

import mounting
from needs import address
from servers import azurite, fake_gcs, rclone, seaweedfs

# What zarrfs, started by the tests, is told of the keys.
S3_KEYS = {
    "AWS_ACCESS_KEY_ID": seaweedfs.ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": seaweedfs.SECRET_KEY,
}
AZURE_KEYS = {
    "AZURE_STORAGE_ACCOUNT_NAME": azurite.ACCOUNT,
    "AZURE_STORAGE_ACCOUNT_KEY": azurite.KEY,
}
OWN = ("AWS_", "GOOGLE_", "AZURE_", "SERVICE_ACCOUNT", "AZURITE_")


def environment(more):
    """Returns the environment for zarrfs: nobody's credentials but `more`, and a home folder without any."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    return {**mine, "HOME": "/nonexistent", **more}


class Place:
    """A prefix of a server: `url` is what is mounted, with the mount options `options`, and the variables
    `keys` when the server asks for them."""

    keys = {}
    lists = True

    def __init__(self):
        self.prefix = f"place-{uuid.uuid4().hex[:12]}"

    def upload(self, folder):
        """Copies the content of a folder to the prefix."""
        raise NotImplementedError

    def mount(self, *options, under="", kind=mounting.Mount):
        """Returns the mount, not made yet, of what lies at `under` below the prefix."""
        store = f"{self.url}/{under}" if under else self.url
        return kind(store, *self.options, *options, environment=environment(self.keys))


class S3(Place):
    """SeaweedFS; `anybody` may read it if that is set."""

    def __init__(self, anybody=False):
        super().__init__()
        self.endpoint = address("ZARRFS_TEST_S3")
        self.bucket = seaweedfs.PUBLIC_BUCKET if anybody else seaweedfs.BUCKET
        self.url = f"s3://{self.bucket}/{self.prefix}"
        self.options = ["--endpoint", self.endpoint, "--region", seaweedfs.REGION]
        if anybody:
            self.options.append("--anon")
        else:
            self.keys = S3_KEYS

    def upload(self, folder):
        rclone.copy(folder, seaweedfs.remote(self.endpoint), f"{self.bucket}/{self.prefix}")


class Moto(Place):
    keys = S3_KEYS

    def __init__(self):
        super().__init__()
        self.endpoint = address("ZARRFS_TEST_MOTO")
        self.url = f"s3://{seaweedfs.BUCKET}/{self.prefix}"
        self.options = ["--endpoint", self.endpoint]

    def upload(self, folder):
        rclone.copy(folder, seaweedfs.remote(self.endpoint), f"{seaweedfs.BUCKET}/{self.prefix}")


class Azure(Place):
    keys = AZURE_KEYS

    def __init__(self):
        super().__init__()
        self.endpoint = address("ZARRFS_TEST_AZURE")
        self.url = f"az://{azurite.CONTAINER}/{self.prefix}"
        self.options = ["--endpoint", f"{self.endpoint}/{azurite.ACCOUNT}"]

    def upload(self, folder):
        rclone.copy(folder, azurite.remote(self.endpoint), f"{azurite.CONTAINER}/{self.prefix}")


class Gcs(Place):
    def __init__(self):
        super().__init__()
        self.endpoint = address("ZARRFS_TEST_GCS")
        self.url = f"gs://{fake_gcs.BUCKET}/{self.prefix}"
        self.options = ["--endpoint", self.endpoint, "--anon"]

    def upload(self, folder):
        fake_gcs.upload_folder(self.endpoint, folder, self.prefix)


class Web(Place):
    """A server of a folder: its address and the folder are in the two variables."""

    def __init__(self, variable, folder_variable, lists=True):
        super().__init__()
        self.url = f"{address(variable)}/{self.prefix}"
        self.folder = Path(address(folder_variable)) / self.prefix
        self.options = []
        self.lists = lists

    def upload(self, folder):
        shutil.copytree(folder, self.folder, dirs_exist_ok=True)


PLACES = {
    "s3": S3,
    "s3-anonymous": lambda: S3(anybody=True),
    "moto": Moto,
    "azure": Azure,
    "gcs": Gcs,
    "webdav": lambda: Web("ZARRFS_TEST_WEBDAV", "ZARRFS_TEST_WEBDAV_DIR"),
    "nginx": lambda: Web("ZARRFS_TEST_NGINX", "ZARRFS_TEST_NGINX_DIR", lists=False),
    "nginx-autoindex": lambda: Web("ZARRFS_TEST_NGINX_AUTOINDEX", "ZARRFS_TEST_NGINX_DIR"),
    "apache": lambda: Web("ZARRFS_TEST_APACHE", "ZARRFS_TEST_APACHE_DIR"),
    "caddy": lambda: Web("ZARRFS_TEST_CADDY", "ZARRFS_TEST_CADDY_DIR"),
    "http.server": lambda: Web("ZARRFS_TEST_HTTP", "ZARRFS_TEST_HTTP_DIR"),
}
