"""What another program sees of a store and does to it, past zarrfs: the store's own folder, or rclone."""

import os
import shutil
import tempfile
from pathlib import Path

import places
from servers import azurite, rclone, seaweedfs


class Folder(places.Place):
    """A store in a folder of this machine."""

    options = []

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = str(self.folder)

    def upload(self, folder):
        shutil.copytree(folder, self.folder, dirs_exist_ok=True)


class Outside:
    """Another program that uses the store of a place."""

    def __init__(self, place):
        self.place = place
        self.folder = getattr(place, "folder", None)
        if isinstance(place, places.S3):
            self.remote = seaweedfs.remote(place.endpoint)
            self.root = f"remote:{place.bucket}/{place.prefix}"
        elif isinstance(place, places.Azure):
            self.remote = azurite.remote(place.endpoint)
            self.root = f"remote:{azurite.CONTAINER}/{place.prefix}"

    def content(self):
        """Returns the bytes of each key."""
        if self.folder is not None:
            return content(self.folder)
        with tempfile.TemporaryDirectory(prefix="zarrfs-outside-") as folder:
            rclone.rclone(self.remote, "copy", "--transfers", "16", self.root, folder)
            return content(folder)

    def write(self, key, bytes_):
        """Puts an object under a key, whatever was there."""
        if self.folder is not None:
            path = self.folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_)
            return
        with tempfile.NamedTemporaryFile(prefix="zarrfs-outside-") as file:
            file.write(bytes_)
            file.flush()
            rclone.rclone(self.remote, "copyto", file.name, f"{self.root}/{key}")

    def remove(self, key):
        if self.folder is not None:
            return (self.folder / key).unlink()
        return rclone.rclone(self.remote, "deletefile", f"{self.root}/{key}")


def content(folder):
    """Returns the bytes of each file below a folder; SeaweedFS lists empty folders for a while, in which nothing is
    found."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            file = Path(path, name)
            found[str(file.relative_to(folder))] = file.read_bytes()
    return found
