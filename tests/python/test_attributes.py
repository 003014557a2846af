"""Attributes of files whose content was not changed: UPPER has no content for them, and what other programs write to the
store shows through the mount."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import mounting
from mounting import zarrfs

STORED = b"stored"


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    (path / "a/c").mkdir(parents=True)
    for key in ("zarr.json", "a/zarr.json"):
        (path / key).write_text('{"zarr_format": 3, "node_type": "group"}')
    for key in ("a/c/0", "a/c/1"):
        (path / key).write_bytes(STORED)
    return path


@pytest.fixture
def upper(tmp_path):
    return tmp_path / "upper"


@pytest.fixture(params=["cow", "through"])
def options(request, upper):
    through = ["--write-through"] if request.param == "through" else []
    return [*through, "--cow", upper]


def contents(upper):
    """Returns the files that UPPER has of keys, and on the way to them."""
    folders = [upper / name for name in ("keys", "pending", "frozen/keys")]
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def copy_attributes(path):
    """Gives a file the attributes of another one, as cp -p, rsync and shutil.copytree do."""
    like = path.parents[2] / "like"
    if not like.exists():
        like.write_bytes(b"")
        os.chmod(like, 0o640)
        os.setxattr(like, "user.note", b"x")
        os.utime(like, (100, 200))
    shutil.copystat(like, path)
    found = path.stat()
    assert (found.st_mode & 0o7777, found.st_atime, found.st_mtime) == (0o640, 100, 200)
    assert os.getxattr(path, "user.note") == b"x"


WAYS = {
    "touch": lambda path: path.touch(),
    "utime": lambda path: os.utime(path, (1, 2)),
    "chmod": lambda path: path.chmod(0o600),
    "chown": lambda path: os.chown(path, -1, os.getegid()),
    "setfattr": lambda path: os.setxattr(path, "user.note", b"x"),
    "copystat": copy_attributes,
}


# Invariant of `setting_attributes_does_not_hide_later_store_writes`.
@pytest.mark.parametrize("way", WAYS)
def test_content_written_by_others_shows_after_a_change_of_attributes(store, upper, options, mounted, way):
    key = "a/c/1"
    mount = mounted(store, *options)
    with open(mount.path / "a/c/1", "rb") as open_before:
        assert open_before.read() == STORED
        WAYS[way](mount.path / key)
        assert contents(upper) in ([], [upper / "keys/like"])
    kept = "    a/c/1: owner, mode, times or extended attributes\n"
    assert kept in zarrfs("status", mount.path).stdout

    def others_write(text):
        (store / key).write_bytes(text)
        assert (mount.path / key).read_bytes() == text, way
        assert (mount.path / key).stat().st_size == len(text)

    others_write(b"by others")
    (mount.path / "a/c/0").write_bytes(b"own")
    assert kept in zarrfs("commit", mount.path).stdout
    assert (store / "a/c/0").read_bytes() == b"own"
    others_write(b"again, and longer")
    zarrfs("umount", mount.path)
    mount = mounted(store, *options)
    others_write(b"after a mount")
    if way == "setfattr":
        assert os.getxattr(mount.path / key, "user.note") == b"x"
        assert "user.note" in os.listxattr(mount.path / key)
    if way == "chmod":
        assert (mount.path / key).stat().st_mode & 0o7777 == 0o600
    assert contents(upper) == []
    zarrfs("discard", mount.path, key)
    assert "nothing to commit" in zarrfs("status", mount.path).stdout
    assert kept not in zarrfs("status", mount.path).stdout
    assert b"user.note" not in os.listxattr(mount.path / key)


# Invariant of `setting_attributes_does_not_hide_later_store_writes`.
def test_a_copied_tree_leaves_nothing_in_the_upper_folder(store, upper, mounted, tmp_path):
    source = tmp_path / "source"
    for number in range(20):
        path = source / f"c/{number % 4}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number)
        os.utime(path, (1000 + number, 2000 + number))
        path.chmod(0o604)
    mount = mounted(store, "--write-through", "--cow", upper)
    shutil.copytree(source, mount.path / "copied")
    assert contents(upper) == []
    for path in source.rglob("*"):
        if path.is_file():
            key = f"copied/{path.relative_to(source)}"
            assert (store / key).read_bytes() == path.read_bytes()
            found = (mount.path / key).stat()
            assert found.st_mode & 0o7777 == 0o604
            assert found.st_mtime == path.stat().st_mtime
            (store / key).write_bytes(b"by others")
            assert (mount.path / key).read_bytes() == b"by others"
            assert (mount.path / key).stat().st_mtime == (store / key).stat().st_mtime


def test_attributes_follow_renames_and_links(store, upper, options, mounted):
    mount = mounted(store, *options)
    at = Path(mount.path)
    os.setxattr(at / "a/c/0", "user.note", b"0")
    (at / "a/c/1").chmod(0o600)
    (at / "a").rename(at / "b")
    assert os.getxattr(at / "b/c/0", "user.note") == b"0"
    os.link(at / "b/c/1", at / "b/c/2")
    zarrfs("commit", mount.path)
    zarrfs("umount", mount.path)
    mount = mounted(store, *options)
    at = Path(mount.path)
    assert os.getxattr(at / "b/c/0", "user.note") == b"0"
    assert (at / "b/c/1").stat().st_mode & 0o7777 == 0o600
    assert sorted(path.name for path in (store / "b/c").iterdir()) == ["0", "1", "2"]
    assert (store / "b/c/2").read_bytes() == STORED
    assert contents(upper) == []
    (at / "b/c/0").unlink()
    (at / "b/c/0").write_bytes(b"new")
    assert "user.note" not in os.listxattr(at / "b/c/0")


def test_synced_attributes_survive_a_kill(store, upper, options, daemon):
    mount = daemon(store, *options)
    for key in ("a/c/0", "a/c/1"):
        with open(mount.path / key, "r+b") as file:
            os.fchmod(file.fileno(), 0o600)
            os.utime(file.fileno(), (1, 2))
            os.fsync(file.fileno())
    mount.process.send_signal(signal.SIGKILL)
    mount.process.wait(mounting.LIMIT)
    mounting.lazy_unmount(mount.path)
    again = daemon(store, *options)
    for key in ("a/c/0", "a/c/1"):
        found = (again.path / key).stat()
        assert (found.st_mode & 0o7777, found.st_mtime) == (0o600, 2)
    assert contents(upper) == []
