"""Mounts with --cow of stores on servers, and changes of each kind, for the tests of what commands then do."""

import shutil

import places
from mounting import zarrfs
from outside import Outside

GROUP = b'{"zarr_format": 3, "node_type": "group"}'


class Copy:
    """A mount with --cow of a store on a server; after `leave` commands ask the upper folder instead."""

    def __init__(self, place, keys, folder, options=()):
        self.place, self.outside, self.upper = place, Outside(place), folder / "upper"
        for key, bytes_ in {"zarr.json": GROUP, **keys}.items():
            write(folder / "first" / key, bytes_)
        place.upload(folder / "first")
        self.options = options
        self.enter()

    def enter(self):
        self.mount = self.place.mount("--cow", self.upper, *self.options).__enter__()
        self.path = self.mount.path

    def leave(self):
        mount, self.mount = self.mount, None
        if mount is not None:
            mount.__exit__()

    def says(self, command, *words, status=0, to=None):
        """Returns what a command prints; `to` is the place that its options are for, if not that of the store."""
        asked = to or self.place
        where = self.upper if self.mount is None else self.path
        environment = places.environment(getattr(asked, "keys", {}))
        # A mount has options of its own in force, and refuses others.
        options = () if to is None and self.mount is not None else asked.options
        done = zarrfs(command, *options, where, *words, check=False, environment=environment)
        assert done.returncode == status, f"{command} {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if status != 2 else done.stderr


def write(path, bytes_):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes_)


def numbered(*folders):
    return {f"{folder}/{number}": b"%s %d" % (folder.encode(), number) for folder in folders for number in range(3)}


def change(path, big):
    """Makes a change of each kind to `numbered("a", "b", "c/d", "e", "f")`; returns what is put, and all that the
    store is to hold."""
    write(path / "new", b"new")
    write(path / "n/e/w/0", b"in new folders")
    write(path / "big", big)
    write(path / "a/0", b"changed")
    with open(path / "a/1", "r+b") as file:
        file.write(b"A")
    (path / "a/2").unlink()
    (path / "b").rename(path / "c/b")
    write(path / "c/b/1", b"changed where it was moved")
    (path / "c/d/0").rename(path / "c/0")
    shutil.rmtree(path / "e")
    (path / "f/0").unlink()
    write(path / "f/0/1", b"a folder for a file")
    (path / "empty").mkdir()
    put = {"new": b"new", "n/e/w/0": b"in new folders", "big": big, "a/0": b"changed", "a/1": b"A 1"}
    put |= {"c/b/0": b"b 0", "c/b/1": b"changed where it was moved", "c/b/2": b"b 2", "c/0": b"c/d 0"}
    put |= {"f/0/1": b"a folder for a file"}
    kept = {key: bytes_ for key, bytes_ in numbered("c/d", "f").items() if not key.endswith("0")}
    return put, {"zarr.json": GROUP, **kept, **put}
