"""Commits to servers: the store gets exactly what was changed, and nothing of somebody else's is overwritten.

The store is always read past the mount that changed it.
"""

import errno
import json
import shutil
from pathlib import PurePosixPath

import numpy as np
import pytest
import zarr

import places
from copies import GROUP, Copy, change, numbered, write
from mounting import zarrfs
from outside import Folder, Outside, content

BIG = 20 << 20
SERVERS = {"s3": "live", "azure": "unmounted", "webdav": "live"}
WITH_READERS = {"s3": "live", "nginx-autoindex": "unmounted"}
TAKE_NOTHING = {"s3-anonymous": "unmounted", "nginx": "live", "http.server": "unmounted"}


@pytest.fixture
def copy(tmp_path):
    """Fills a place and mounts it, with `copy(place, {key: bytes}, *options)`."""
    copies = []

    def make(place, keys, *options):
        copies.append(Copy(place, keys, tmp_path, options))
        return copies[-1]

    yield make
    for made in copies:
        made.leave()


def each(servers):
    """Runs a test on each of some servers; commands ask the mount, or what `left(copy)` has unmounted."""
    return pytest.mark.parametrize("place, left", servers.items(), indirect=True)


@pytest.fixture(params=SERVERS)
def place(request):
    return places.PLACES[request.param]()


@pytest.fixture(params=["live", "unmounted"])
def left(request):
    return Copy.leave if request.param == "unmounted" else lambda copy: None


def named(said):
    """Returns the keys that a commit named, each on its line."""
    return [line.split(":")[0] for line in said.splitlines()]


# Whole commits.


@each(SERVERS)
def test_a_commit_puts_all_changes_into_the_store(place, copy, left):
    before = numbered("a", "b", "c/d", "e", "f")
    made = copy(place, before)
    put, wanted = change(made.path, np.random.default_rng(1).bytes(BIG + 321))
    assert content(made.path) == wanted
    left(made)
    gone = before.keys() - wanted.keys()
    letters = {f"{'M' if key in before else 'A'} {key}" for key in put} | {f"D {key}" for key in gone}
    assert set(made.says("diff", status=1).splitlines()) == letters
    status = json.loads(made.says("status", "--json"))
    assert (status["put"], status["erased"]) == (len(put), len(gone))
    assert made.says("commit", "--dry-run").startswith(f"dry run: {len(put)} put (")
    assert made.outside.content() == {"zarr.json": GROUP, **before}
    done = made.says("commit").splitlines()
    assert done[0].startswith(f"{len(put)} put (") and done[0].endswith(f"), {len(gone)} removed")
    if isinstance(place, places.Web):
        folders = {str(path.relative_to(place.folder)) for path in place.folder.rglob("*") if path.is_dir()}
        assert folders == {str(path) for key in wanted for path in PurePosixPath(key).parents} - {"."}
    assert done[1:] == ["1 change cannot be committed and stays in the changes directory:", "    empty: empty directory"]
    assert made.outside.content() == wanted
    assert made.says("diff") == ""
    assert made.says("commit").startswith("0 put (0 bytes), 0 removed\n")
    made.leave()
    with place.mount() as mount:
        assert content(mount.path) == wanted


def test_a_file_takes_the_place_of_a_folder(place, copy):
    made = copy(place, numbered("a", "b"), "--timeout", "2s")
    shutil.rmtree(made.path / "a")
    write(made.path / "a", b"a file")
    made.says("commit")
    assert made.outside.content() == {"zarr.json": GROUP, "a": b"a file", **numbered("b")} == content(made.path)


def test_changes_of_zarr_python_are_committed(place, copy, tmp_path):
    values = np.arange(600.0).reshape(20, 30)
    group = zarr.create_group(tmp_path / "made")
    group.create_array("a", data=values, chunks=(5, 5), shards=(10, 15))
    group.create_array("gone", data=values)
    before = values.copy()
    made = copy(place, content(tmp_path / "made"))
    root = zarr.open_group(made.path, mode="r+")
    root["a"][3:12, 4:20] = values[3:12, 4:20] = -1
    root["a"].attrs["unit"] = "K"
    root.create_array("new", data=before)
    del root["gone"]
    mapped = np.load(made.mount.files / "a/a.npy", mmap_mode="r+")
    mapped[19, 29] = values[19, 29] = 7
    mapped.flush()
    made.says("commit")
    for key, bytes_ in made.outside.content().items():
        write(tmp_path / "found" / key, bytes_)
    found = zarr.open_group(tmp_path / "found", mode="r")
    assert sorted(found) == ["a", "new"] and dict(found["a"].attrs) == {"unit": "K"}
    np.testing.assert_array_equal(found["a"][...], values)
    np.testing.assert_array_equal(found["new"][...], before)


# What somebody else did.


@each(SERVERS)
def test_a_conflict_is_named_and_nothing_is_overwritten(place, copy, left):
    made = copy(place, numbered("a", "b", "c", "moved"))
    path, outside = made.path, made.outside
    for key in ("a/0", "a/1", "a/2", "b/new", "b/same", "free"):
        write(path / key, b"ours")
    for key in ("b/0", "b/1", "c/0"):
        (path / key).unlink()
    (path / "moved").rename(path / "here")
    theirs = {"a/0": b"theirs", "a/1": None, "b/new": b"theirs", "b/0": b"theirs", "b/1": None}
    theirs |= {"b/same": b"ours", "c/1": b"theirs", "moved/1": b"theirs"}
    for key, bytes_ in theirs.items():
        outside.remove(key) if bytes_ is None else outside.write(key, bytes_)
    left(made)
    before = outside.content()
    # What both did in the same way is none, nor what only somebody else changed, nor what nobody has seen.
    conflicts = ["a/0", "a/1", "b/0", "b/new"]
    for words in (["--dry-run"], []):
        assert sorted(named(made.says("commit", *words, status=1))) == conflicts
        assert outside.content() == before
    found = json.loads(made.says("commit", "--json", status=1))["conflicts"]
    assert sorted(key for key, _ in found) == conflicts
    made.says("discard", "a/0")
    made.says("commit", "--force")
    after = outside.content()
    ours = {key: b"ours" for key in ("a/1", "a/2", "b/new", "b/same", "free")}
    theirs = {"a/0": b"theirs", "c/1": b"theirs", "here/1": b"theirs"}
    stays = {"zarr.json": GROUP, "b/2": b"b 2", "c/2": b"c 2", "here/0": b"moved 0", "here/2": b"moved 2"}
    assert after == {**stays, **ours, **theirs}
    assert made.says("diff") == ""


def test_a_change_of_another_program_does_not_bring_back_old_bytes(place, copy):
    made = copy(place, {"a": b"stored", "b": b"stored"})
    assert content(made.path)["a"] == b"stored"
    made.outside.write("a", b"theirs")
    made.outside.remove("b")
    for key in "aabb":
        try:
            with open(made.path / key, "r+b") as file:
                file.write(b"OUR")
        except OSError as error:
            # Once it was seen, the content that is there now is changed.
            assert error.errno in (errno.ESTALE, errno.ENOENT)
    assert (made.path / "a").read_bytes() == b"OURirs"
    assert not (made.path / "b").exists()
    said = zarrfs("commit", made.path, check=False)
    wanted = {0: b"OURirs", 1: b"theirs"}[said.returncode]
    assert made.outside.content() == {"zarr.json": GROUP, "a": wanted}


# Two chunks of four elements each, of which the first is stored.
HALF = {
    "half/.zgroup": b'{"zarr_format": 2}',
    "half/x/.zarray": json.dumps(
        {
            "zarr_format": 2,
            "shape": [8],
            "chunks": [4],
            "dtype": "<i4",
            "compressor": None,
            "fill_value": 0,
            "order": "C",
            "filters": None,
        }
    ).encode(),
    "half/x/0": bytes(16),
}


@each(SERVERS)
def test_a_commit_finds_conflicts_that_cached_metadata_hide(place, copy, left):
    """Keys that other programs add and remove within --metadata-ttl are not visible in the mount; the commit finds them."""
    made = copy(place, numbered("a") | HALF, "--metadata-ttl", "600")
    path, outside = made.path, made.outside
    decoded = path / ".zarrfs" / "files" / "half" / "x" / "x.raw"
    before = content(path)
    assert decoded.read_bytes() == bytes(32)
    theirs = {"a/new": b"theirs", "a/0": None, "half/x/0": None, "half/x/1": bytes([9] * 16)}
    for key, bytes_ in theirs.items():
        outside.remove(key) if bytes_ is None else outside.write(key, bytes_)
    assert content(path) == before
    for key in ("a/new", "a/0"):
        write(path / key, b"ours")
    with open(decoded, "r+b") as file:
        file.write(b"o")
        file.seek(16)
        file.write(b"o")
    left(made)
    stored = outside.content()
    assert sorted(named(made.says("commit", status=1))) == ["a/0", "a/new", "half/x/0", "half/x/1"]
    assert outside.content() == stored


# Other stores.


@each(WITH_READERS)
def test_a_commit_to_a_new_store_copies_everything(place, copy, left, tmp_path):
    made = copy(place, numbered("a", "b", "c/d", "e", "f"))
    before = made.outside.content()
    put, wanted = change(made.path, b"b" * (BIG if isinstance(place, places.S3) else 10))
    left(made)
    difference = made.says("diff", status=1)
    folder = Folder(tmp_path / "other")
    # It does not have to be there.
    folder.folder.rmdir()
    for to in (folder, places.S3()):
        words, options = ["commit", "--to", to.url], to if to.options else made.place
        said = made.says(*words, to=options)
        assert said.startswith(f"{len(wanted)} put ("), said
        assert Outside(to).content() == wanted
        made.says(*words, to=options)
        Outside(to).write("a/0", b"theirs")
        assert named(made.says(*words, to=options, status=1)) == ["a/0"]
        assert Outside(to).content() == {**wanted, "a/0": b"theirs"}
    assert made.outside.content() == before
    assert made.says("diff", status=1) == difference


@each(TAKE_NOTHING)
def test_changes_are_kept_if_the_store_is_read_only(place, copy, left):
    made = copy(place, numbered("a"))
    before = made.outside.content()
    write(made.path / "a/0", b"changed")
    (made.path / "a/1").unlink()
    left(made)
    assert "a/" in made.says("commit", status=2)
    assert made.outside.content() == before
    assert made.says("diff", status=1) == "M a/0\nD a/1\n"
