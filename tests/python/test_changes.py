"""A store that somebody else writes while it is mounted: what is opened anew shows the change within 2 seconds."""

import errno
import json
import os
import time

import numpy as np
import pytest
import zarr

import layout
from mounting import wait_until

DELAY = 2.0


@pytest.fixture(params=[2, 3])
def store(request, tmp_path):
    """Makes a store with one array of ten chunks, the last of them missing."""
    path = tmp_path / "changing.zarr"
    root = zarr.create_group(path, zarr_format=request.param)
    array = root.create_array("a", shape=(100,), chunks=(10,), dtype="<i4")
    array[:90] = np.arange(90)
    return path


def seen(read, expected):
    """Reads anew until the expected value is there; returns the last value read."""
    end = time.monotonic() + DELAY
    while True:
        value = read()
        if np.array_equal(value, expected) or time.monotonic() > end:
            return value
        time.sleep(0.05)


def reader(mount):
    """Returns a function that opens and reads the decoded array anew."""
    path = layout.decoded(mount.files, mount.store, "a", "npy")
    return lambda: np.load(path)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a.__setitem__(slice(20, 30), -1), id="rewritten"),
        pytest.param(lambda a: a.__setitem__(slice(90, 100), 5), id="added"),
        pytest.param(lambda a: a.resize((130,)), id="grown"),
        pytest.param(lambda a: a.resize((33,)), id="shrunk"),
    ],
)
def test_a_change_is_seen_in_the_decoded_file(store, mounted, change):
    mount = mounted(store)
    read = reader(mount)
    writer = zarr.open_group(store, mode="r+")["a"]
    np.testing.assert_array_equal(read(), writer[...])
    change(writer)
    expected = zarr.open_group(store, mode="r")["a"][...]
    np.testing.assert_array_equal(seen(read, expected), expected)


def test_a_removed_chunk_reads_as_the_fill_value(store, mounted):
    mount = mounted(store)
    read = reader(mount)
    writer = zarr.open_group(store, mode="r+")["a"]
    expected = read()
    os.unlink(store / "a" / writer.metadata.encode_chunk_key((4,)))
    expected[40:50] = 0
    np.testing.assert_array_equal(seen(read, expected), expected)


def test_a_change_is_seen_in_the_store_view(store, mounted):
    mount = mounted(store)
    writer = zarr.open_group(store, mode="r+")["a"]
    key = os.path.join("a", writer.metadata.encode_chunk_key((2,)))
    before = (mount.path / key).read_bytes()
    writer[20:30] = np.arange(1000, 1010)
    after = (store / key).read_bytes()
    assert after != before
    assert wait_until(lambda: (mount.path / key).read_bytes() == after, DELAY)
    opened = zarr.open_group(mount.path, mode="r")["a"]
    np.testing.assert_array_equal(opened[...], writer[...])


def test_a_new_array_is_listed(store, mounted):
    mount = mounted(store)
    assert "b" not in os.listdir(mount.files)
    root = zarr.open_group(store, mode="r+")
    root.create_array("b", shape=(4,), chunks=(4,), dtype="<f8")[...] = 1.5
    assert wait_until(lambda: "b" in os.listdir(mount.files), DELAY)
    assert wait_until(lambda: "b" in os.listdir(mount.path), DELAY)
    path = layout.decoded(mount.files, store, "b", "npy")
    np.testing.assert_array_equal(np.load(path), np.full(4, 1.5))


def test_changed_attributes_are_seen(store, mounted):
    mount = mounted(store)
    path = mount.files / "a" / "attributes.json"
    assert json.loads(path.read_text()) == {}
    zarr.open_group(store, mode="r+")["a"].attrs["units"] = "K"
    assert wait_until(lambda: json.loads(path.read_text()) == {"units": "K"}, DELAY)


def test_a_file_that_grew_is_never_cut(store, mounted):
    mount = mounted(store)
    shown = mount.path / "note"
    for size in range(1, 60):
        (store / "note").write_bytes(b"x" * 10 * size)
        # The kernel now believes this length for a second.
        shown.stat()
        (store / "note").write_bytes(b"y" * 20 * size)
        assert shown.read_bytes() == b"y" * 20 * size


def test_old_bytes_of_a_replaced_file_never_reach_new_readers(store, mounted, tmp_path):
    mount = mounted(store)
    (store / "big").write_bytes(b"o" * (16 << 20))
    old = os.open(mount.path / "big", os.O_RDONLY)
    try:
        assert os.pread(old, 1, 0) == b"o"
        (tmp_path / "new").write_bytes(b"n" * (16 << 20))
        os.replace(tmp_path / "new", store / "big")
        time.sleep(1.3)
        with open(mount.path / "big", "rb") as new:
            assert os.pread(new.fileno(), 1, 0) == b"n"
            place = 9 << 20
            try:
                assert os.pread(old, 4096, place) == b"n" * 4096
            except OSError as error:
                assert error.errno == errno.ESTALE
            assert os.pread(new.fileno(), 1 << 20, place) == b"n" * (1 << 20)
    finally:
        os.close(old)
