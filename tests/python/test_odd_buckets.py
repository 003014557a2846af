"""Buckets of servers that list nothing, know old listings alone, or whose listings do not end."""

import json
import os
import subprocess
import time

import numpy as np
import pytest
import zarr

import layout
import mounting
import odd_bucket
from mounting import zarrfs

# What a command that asks such a server takes at most, in seconds.
ENDS = 20
# How long is looked whether requests go on.
STAYS = 2

SHAPE, CHUNKS = (12, 12), (4, 4)


def values():
    """Returns elements of which the last row of chunks has the fill value."""
    made = np.arange(144, dtype="<i4").reshape(SHAPE)
    made[8:] = 7
    return made


def make(folder, version, consolidated):
    """Makes a store with sparse arrays, one of them in shards where the version has these."""
    root = zarr.open_group(folder, mode="w", zarr_format=version)
    made = {"g/plain": {"chunks": CHUNKS}}
    if version == 3:
        made["g/sharded"] = {"chunks": (2, 2), "shards": CHUNKS}
    for name, chunks in made.items():
        array = root.create_array(name, shape=SHAPE, dtype="<i4", fill_value=7, **chunks)
        array[:8] = values()[:8]
    if consolidated:
        zarr.consolidate_metadata(folder, zarr_format=version)
    return list(made)


def test_folders_have_the_time_of_the_mount(tmp_path):
    """A prefix of a bucket has no time. Programs that clean up or back up would treat a folder of 1970 as old."""
    folder = tmp_path / "s.zarr"
    make(folder, 3, False)
    (folder / "implied/deep").mkdir(parents=True)
    (folder / "implied/deep/notes").write_text("x")
    with odd_bucket.serving(folder, odd_bucket.VERSION_1) as server:
        store, *options = server.place
        before = time.time()
        with mounting.Mount(store, *options) as mount:
            after = time.time()
            folders = [parent for parent, _, _ in os.walk(mount.path)]
            folders += [mount.files / "implied", mount.files / "implied/deep"]
            assert len(folders) > 8
            for place in folders:
                facts = os.stat(place)
                assert before - 1 <= facts.st_mtime <= after, place
                assert facts.st_mtime == facts.st_ctime == facts.st_atime
            # Objects, and nodes by their documents, have their own times.
            for place in (mount.path / "zarr.json", mount.files / "g"):
                assert 1e9 < place.stat().st_mtime < before, place


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("version", [2, 3])
def test_a_bucket_that_cannot_list_is_read(tmp_path, version, consolidated):
    folder = tmp_path / "s.zarr"
    arrays = make(folder, version, consolidated)
    missing = "c/2/0" if version == 3 else "2.0"
    with odd_bucket.serving(folder, odd_bucket.UNLISTED) as server:
        store, *options = server.place
        with mounting.Mount(store, *options) as mount:
            for name in arrays:
                npy = layout.decoded(mount.files, mount.store, name, "npy")
                assert np.array_equal(np.load(npy), values())
                assert np.array_equal(zarr.open_array(mount.path / name, mode="r")[...], values())
                assert not (mount.path / name / missing).exists()
        for name in arrays:
            array = f"{store}/{name}"
            assert zarrfs("cat", *options, "--select", "11,:2", array).stdout.split() == ["7", "7"]
            assert "no such file or key" in zarrfs("cat", *options, f"{array}/{missing}", check=False).stderr
            copy = tmp_path / f"{name.replace('/', '_')}.npy"
            zarrfs("cp", *options, array, copy)
            assert np.array_equal(np.load(copy), values())
            zarrfs("check", *options, "--data", array)
        if consolidated:
            said = zarrfs("tree", *options, store).stdout
            assert all(name.removeprefix("g/") in said for name in arrays)


@pytest.mark.parametrize("option", [["--missing-is", "403"], ["-o", "missing_is=403"]])
def test_the_option_missing_is_saves_requests_of_missing_keys(tmp_path, option):
    folder = tmp_path / "s.zarr"
    make(folder, 3, False)
    with odd_bucket.serving(folder, odd_bucket.UNLISTED) as server:
        store, *options = server.place
        with mounting.Mount(store, *options, *option) as mount:
            missing = [f"c/2/{number}" for number in range(3)]
            assert not any((mount.path / "g/plain" / key).exists() for key in missing)
            plain = [path for path in server.asked if path.endswith(tuple(missing))]
            assert len(plain) == len(set(plain)) == 3
            npy = layout.decoded(mount.files, mount.store, "g/plain", "npy")
            assert np.array_equal(np.load(npy), values())
            assert json.loads((mount.path / ".zarrfs/mount.json").read_text())["options"]["missing_is"] == "403"
        if option[0] != "-o":
            zarrfs("check", *options, *option, "--data", f"{store}/g/plain")


def below(folder):
    """Returns the paths of all files below a folder."""
    files = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(os.path.relpath(file, folder) for file in files)


def make_many(folder):
    """Makes a store with more names than a page has, in one array and in groups."""
    root = zarr.open_group(folder, mode="w", zarr_format=3)
    many = root.create_array("many", shape=(100,), chunks=(1,), dtype="u1")
    many[...] = np.arange(1, 101)
    for number in range(30):
        root.create_group(f"g{number:02}")


def test_a_bucket_that_lists_by_version_1_is_read(tmp_path):
    folder = tmp_path / "s.zarr"
    make_many(folder)
    with odd_bucket.serving(folder, odd_bucket.VERSION_1) as server:
        store, *options = server.place
        with mounting.Mount(store, *options) as mount:
            assert below(mount.path) == below(folder)
            npy = layout.decoded(mount.files, mount.store, "many", "npy")
            assert np.array_equal(np.load(npy), np.arange(1, 101))
        assert zarrfs("tree", *options, store).stdout.count("g") >= 30
        zarrfs("check", *options, "--data", store)


@pytest.mark.parametrize("kind", [odd_bucket.EMPTY_TOKEN, odd_bucket.SAME_TOKEN])
def test_an_endless_listing_is_an_error(tmp_path, kind):
    folder = tmp_path / "s.zarr"
    make_many(folder)
    with odd_bucket.serving(folder, kind) as server:
        store, *options = server.place
        for command, status in [("tree", 2), ("ls", 2), ("check", 1)]:
            done = zarrfs(command, *options, store, check=False, limit=ENDS)
            assert done.returncode == status, command
            assert "endless listing" in done.stdout + done.stderr, command
        with mounting.Mount(store, *options) as mount:
            found = subprocess.run(["find", mount.path], capture_output=True, text=True, timeout=ENDS)
            assert found.returncode == 1
            assert "Input/output error" in found.stderr
            assert "endless listing" in (mount.path / ".zarrfs/errors").read_text()
            asked = len(server.asked)
            time.sleep(STAYS)
            assert len(server.asked) == asked


def test_a_bucket_with_a_truncated_listing_is_not_mounted(tmp_path):
    folder = tmp_path / "s.zarr"
    make_many(folder)
    with odd_bucket.serving(folder, odd_bucket.CUT_OFF) as server:
        store, *options = server.place
        with pytest.raises(AssertionError, match="without a token or a name"):
            with mounting.Mount(store, *options):
                pass
        asked = len(server.asked)
        time.sleep(STAYS)
        assert len(server.asked) == asked
