"""Mounts with --write-through: what a program closed is in the store, and what the store refuses the program is told.

The store is always read past the mount that wrote it.
"""

import errno
import json
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest
import zarr

import mounting
import places
from mounting import zarrfs
from outside import Folder, Outside, content
from refusing import Refusing

GROUP = b'{"zarr_format": 3, "node_type": "group"}'
BIG = 40 << 20
# Long enough for a server of this machine, and short for one that refuses everything.
IMPATIENT = ["--timeout", "1s"]


@pytest.fixture(params=["folder", "s3", "webdav"])
def place(request, tmp_path):
    """Returns an empty store in a folder, on SeaweedFS, and on a WebDAV server."""
    return Folder(tmp_path / "store") if request.param == "folder" else places.PLACES[request.param]()


@pytest.fixture
def through(tmp_path):
    """Mounts a place so that changes go through, with `through(place, {key: bytes}, *options)`: returns the mount, and
    the store as others see it."""
    mounts = []

    def mount(place, keys, *options):
        outside = Outside(place)
        for key, bytes_ in {"zarr.json": GROUP, **keys}.items():
            outside.write(key, bytes_)
        mounts.append(place.mount("--write-through", "--cow", tmp_path / "upper", *options))
        return mounts[-1].__enter__(), outside

    yield mount
    for made in reversed(mounts):
        made.__exit__()


def refused(kind, work, *arguments):
    """Does what has to fail with an error number."""
    with pytest.raises(OSError) as error:
        work(*arguments)
    assert error.value.errno == kind, error.value


def check_nothing_is_uncommitted(mount):
    """Checks that the store has everything."""
    assert zarrfs("diff", mount.path).stdout == ""
    assert "nothing to commit" in zarrfs("status", mount.path).stdout


# What reaches the store, and when.


def test_a_file_is_in_the_store_when_it_is_closed_or_synced(place, through):
    mount, outside = through(place, {"a/c/0": b"stored"})
    with open(mount.path / "a/c/1", "wb") as file:
        file.write(b"one")
        file.flush()
        os.fsync(file.fileno())
        assert outside.content()["a/c/1"] == b"one"
        file.write(b" and two")
        file.flush()
        assert outside.content()["a/c/1"] in (b"one", b"one and two")
    assert outside.content()["a/c/1"] == b"one and two"
    with open(mount.path / "a/c/0", "r+b") as file:
        file.seek(2)
        file.write(b"AR")
    os.truncate(mount.path / "a/c/1", 3)
    with open(mount.path / "a/c/0", "ab") as file:
        file.write(b"!")
    (mount.path / "empty").touch()
    wanted = {"zarr.json": GROUP, "a/c/0": b"stARed!", "a/c/1": b"one", "empty": b""}
    assert outside.content() == wanted == content(mount.path)
    check_nothing_is_uncommitted(mount)


def test_renames_and_removals_reach_the_store(place, through):
    keys = {f"{folder}/{number}": b"%d" % number for folder in "abc" for number in range(4)}
    mount, outside = through(place, keys)
    os.rename(mount.path / "a/0", mount.path / "a/new")
    os.replace(mount.path / "a/1", mount.path / "a/2")
    os.rename(mount.path / "b", mount.path / "a/b")
    (mount.path / "c/3").unlink()
    (mount.path / "e/f").mkdir(parents=True)
    (mount.path / "e/f/0").write_bytes(b"in new folders")
    (mount.path / "a/b/0").write_bytes(b"in a moved one")
    os.rename(mount.path / "e", mount.path / "g")
    wanted = {f"a/b/{number}": b"%d" % number for number in range(1, 4)}
    wanted |= {f"c/{number}": b"%d" % number for number in range(3)}
    wanted |= {"a/new": b"0", "a/2": b"1", "a/3": b"3", "a/b/0": b"in a moved one"}
    wanted |= {"zarr.json": GROUP, "g/f/0": b"in new folders"}
    assert outside.content() == wanted == content(mount.path)
    check_nothing_is_uncommitted(mount)


def test_a_folder_that_is_removed_is_gone_from_the_store(place, through):
    mount, outside = through(place, {"a/c/0": b"0", "a/c/1": b"1", "b/0": b"0"})
    # It is there until it is removed itself, whatever was removed from it before.
    done = subprocess.run(["rm", "-r", mount.path / "a"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (mount.path / "b/0").unlink()
    (mount.path / "b/1").write_bytes(b"in an emptied folder")
    assert outside.content() == {"zarr.json": GROUP, "b/1": b"in an emptied folder"}
    check_nothing_is_uncommitted(mount)


def test_a_temporary_file_gets_its_name_in_the_store(place, through):
    mount, outside = through(place, {"a/zarr.json": b"{}"})
    for text in (b'{"first": 1}', b'{"second": 2}'):
        with open(mount.path / "a/.zarr.json.tmp", "wb") as file:
            file.write(text)
            os.fsync(file.fileno())
        os.replace(mount.path / "a/.zarr.json.tmp", mount.path / "a/zarr.json")
        assert outside.content() == {"zarr.json": GROUP, "a/zarr.json": text}
    # zarr-python's own way to make a key that is not there.
    (mount.path / "a/part").write_bytes(b"linked")
    os.link(mount.path / "a/part", mount.path / "a/c")
    (mount.path / "a/part").unlink()
    assert outside.content() == {"zarr.json": GROUP, "a/zarr.json": text, "a/c": b"linked"}
    check_nothing_is_uncommitted(mount)


def test_mapped_pages_reach_the_store(place, through):
    mount, outside = through(place, {"a": bytes(8192)})
    with open(mount.path / "a", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 8192)
    mapped[4000:4200] = b"s" * 200
    mapped.flush()
    assert outside.content()["a"] == bytes(4000) + b"s" * 200 + bytes(3992)
    mapped[0:2] = b"xx"
    mapped.close()

    def is_there():
        return outside.content()["a"][:2] == b"xx"

    # Who unmaps is not told when the last write is done.
    assert mounting.wait_until(is_there)


def test_a_big_object_reaches_the_store(place, through):
    mount, outside = through(place, {})
    bytes_ = np.random.default_rng(1).bytes(BIG + 12345)
    (mount.path / "big").write_bytes(bytes_)
    assert outside.content()["big"] == bytes_
    with open(mount.path / "big", "r+b") as file:
        file.seek(BIG)
        file.write(b"changed")
    assert outside.content()["big"] == bytes_[:BIG] + b"changed" + bytes_[BIG + 7 :]
    check_nothing_is_uncommitted(mount)


def test_the_default_upper_folder_is_in_the_state_folder(tmp_path):
    store, state = Folder(tmp_path / "store"), tmp_path / "state"
    Outside(store).write("zarr.json", GROUP)
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    for number in range(2):
        with mounting.Mount(store.url, "--write-through", environment=environment) as mount:
            (mount.path / f"{number}").write_bytes(b"x")
            options = json.loads((mount.path / ".zarrfs/mount.json").read_text())["options"]
            assert options["cow"].startswith(f"{state}/zarrfs/")
    assert set(Outside(store).content()) == {"zarr.json", "0", "1"}


# Arrays.


@pytest.mark.parametrize("form", [2, 3])
def test_zarr_python_writes_an_array(form, place, through):
    mount, outside = through(place, {})
    values = np.random.default_rng(form).normal(size=(50, 40)).astype("f4")
    group = zarr.create_group(mount.path / "g", zarr_format=form)
    shards = {"shards": (20, 20)} if form == 3 else {}
    array = group.create_array("a", shape=(50, 40), chunks=(10, 10), dtype="f4", **shards)
    array[...] = values
    array.attrs["unit"] = "K"
    array[3:17, 5:33] = values[3:17, 5:33] = 9
    found = in_memory(outside, "g")["a"]
    np.testing.assert_array_equal(found[...], values)
    assert dict(found.attrs) == {"unit": "K"}
    check_nothing_is_uncommitted(mount)


def in_memory(outside, path=""):
    """Returns a group of a copy of the store."""
    buffer = zarr.core.buffer.cpu.Buffer
    keys = {key: buffer.from_bytes(bytes_) for key, bytes_ in outside.content().items()}
    return zarr.open_group(zarr.storage.MemoryStore(keys), path=path, mode="r")


def test_the_files_view_writes_through(place, through, tmp_path):
    made = zarr.create_group(tmp_path / "made")
    made.create_array("a", shape=(20, 30), chunks=(7, 8), shards=(14, 16), dtype="<i4", fill_value=1)
    mount, outside = through(place, content(tmp_path / "made"))
    expected = np.ones((20, 30), "i4")
    mapped = np.load(mount.files / "a/a.npy", mmap_mode="r+")
    mapped[3:11, 5:20] = expected[3:11, 5:20] = 7
    mapped.flush()
    np.testing.assert_array_equal(in_memory(outside)["a"][...], expected)
    del mapped
    with open(mount.files / "a/a.raw", "r+b") as file:
        file.seek(4 * (14 * 30 + 16))
        file.write(np.full(14, 5, "<i4").tobytes())
    expected[14, 16:30] = 5
    np.testing.assert_array_equal(in_memory(outside)["a"][...], expected)
    (mount.files / "a/attributes.json").write_text('{"unit": "K"}')
    assert dict(in_memory(outside)["a"].attrs) == {"unit": "K"}
    check_nothing_is_uncommitted(mount)


# What the store refuses.


@pytest.mark.parametrize("status, kind", [(403, errno.EACCES), (500, errno.EIO)])
def test_a_write_refused_by_the_server_fails_close_and_is_retried(status, kind, through):
    place = places.S3()
    with Refusing(place.endpoint) as proxy:
        place.options[1] = proxy.url
        before = {"zarr.json": GROUP, "a/0": b"zero", "a/1": b"one", "a/2": b"two"}
        mount, outside = through(place, before, *IMPATIENT)
        proxy.refused = {"PUT": status, "POST": status, "DELETE": status}
        refused(kind, (mount.path / "a/0").write_bytes, b"changed")
        refused(kind, (mount.path / "a/new").write_bytes, b"new")
        refused(kind, (mount.path / "a/2").unlink)
        file = open(mount.path / "a/1", "r+b")
        file.write(b"ONE")
        file.flush()
        refused(kind, os.fsync, file.fileno())
        refused(kind, file.close)
        assert outside.content() == before
        assert (mount.path / "a/0").read_bytes() == b"changed"
        differs = zarrfs("diff", mount.path, check=False).stdout
        assert differs == "M a/0\nM a/1\nD a/2\nA a/new\n"
        proxy.refused = {}
        (mount.path / "a/0").write_bytes(b"changed again")
        assert outside.content()["a/0"] == b"changed again"
        zarrfs("commit", mount.path)
        check_nothing_is_uncommitted(mount)
        last = {"zarr.json": GROUP, "a/0": b"changed again", "a/1": b"ONE", "a/new": b"new"}
        assert outside.content() == last == content(mount.path)


def test_a_sync_after_a_failed_one_stores_the_file(through):
    place = places.S3()
    with Refusing(place.endpoint) as proxy:
        place.options[1] = proxy.url
        mount, outside = through(place, {"a": b"stored"}, *IMPATIENT)
        with open(mount.path / "a", "r+b") as file:
            file.write(b"SYNCED")
            file.flush()
            proxy.refused = {"PUT": 403}
            refused(errno.EACCES, os.fsync, file.fileno())
            # The store has nothing of it: it is not synced yet.
            refused(errno.EACCES, os.fsync, file.fileno())
            proxy.refused = {}
            os.fsync(file.fileno())
            assert outside.content()["a"] == b"SYNCED"


def test_a_full_store_is_enospc(small, through):
    mount, outside = through(Folder(small / "store"), {"a": b"a" * (2 << 20), "b": b"b"})
    refused(errno.ENOSPC, (mount.path / "b").write_bytes, b"B" * (3 << 20))
    refused(errno.ENOSPC, (mount.path / "new").write_bytes, b"n" * (3 << 20))
    assert outside.content() == {"zarr.json": GROUP, "a": b"a" * (2 << 20), "b": b"b"}
    (mount.path / "a").unlink()
    (mount.path / "new").unlink()
    zarrfs("commit", mount.path)
    assert outside.content() == {"zarr.json": GROUP, "b": b"B" * (3 << 20)}
    check_nothing_is_uncommitted(mount)


def test_a_read_only_store_is_erofs(small, through):
    mount, outside = through(Folder(small / "store"), {"a": b"a", "b": b"b"})
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    refused(errno.EROFS, (mount.path / "a").write_bytes, b"A")
    refused(errno.EROFS, (mount.path / "b").unlink)
    refused(errno.EROFS, os.rename, mount.path / "zarr.json", mount.path / "c")
    assert outside.content() == {"zarr.json": GROUP, "a": b"a", "b": b"b"}
    subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    zarrfs("commit", mount.path)
    assert outside.content() == {"c": GROUP, "a": b"A"} == content(mount.path)
    check_nothing_is_uncommitted(mount)


# What somebody else writes.


# Opens a file and writes to it, in two steps: a line on its standard input begins the second. Prints the error number.
WRITER = """
import sys
file = open(sys.argv[1], sys.argv[2], buffering=0)
file.write(b"ours") if sys.argv[3] == "first" else None
print("ready", flush=True)
sys.stdin.readline()
try:
    file.write(b"ours") if sys.argv[3] == "second" else None
    file.close()
except OSError as error:
    print(error.errno)
"""


class Writer:
    """A process of its own: one that starts others would flush what it has open when these close their copies."""

    def __init__(self, path, mode, step):
        command = [sys.executable, "-c", WRITER, path, mode, step]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def end(self):
        """Has it end; returns the error number that it got, if it did."""
        said, _ = self.process.communicate("\n", timeout=30)
        return int(said) if said else None


# When it writes: before somebody else does, or after.
@pytest.mark.parametrize("mode, step", [("wb", "first"), ("ab", "first"), ("r+b", "second")])
def test_changes_of_another_program_are_not_overwritten(mode, step, place, through):
    mount, outside = through(place, {"a/0": b"stored", "a/1": b"stored"})
    changes = {"a/0": b"theirs", "a/1": None, "a/2": b"made by them"}
    for key, other in changes.items():
        writer = Writer(mount.path / key, "xb" if key == "a/2" else mode, step)
        outside.write(key, other) if other is not None else outside.remove(key)
        assert writer.end() == errno.ESTALE, key
        assert outside.content().get(key) == other
    if step == "second":
        # It may not even have been possible to begin.
        return
    assert all(b"ours" in (mount.path / key).read_bytes() for key in changes)
    stored = {"zarr.json": GROUP, "a/0": b"theirs", "a/2": b"made by them"}
    said = zarrfs("commit", mount.path, check=False)
    assert said.returncode == 1
    assert [line.split(":")[0] for line in said.stdout.splitlines()] == list(changes)
    assert outside.content() == stored
    # One key in conflict keeps no other one.
    (mount.path / "a/3").write_bytes(b"free")
    assert outside.content() == {**stored, "a/3": b"free"}
    zarrfs("discard", mount.path, "a/0")
    zarrfs("commit", "--force", mount.path)
    ours = {key: (mount.path / key).read_bytes() for key in ("a/1", "a/2")}
    assert outside.content() == {**stored, "a/3": b"free", **ours}
    check_nothing_is_uncommitted(mount)
