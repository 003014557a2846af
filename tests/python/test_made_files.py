"""Files that are made of elements when they are opened, while the elements change in the store."""

import errno
import json
import os
import struct
import time

import pytest

COUNT = 200_000
OFFSET = 1 << 20


def put(store, letter):
    """Replaces the only chunk of an array of strings."""
    element = struct.pack("<I", 4) + letter * 4
    new = store / "a" / "c" / ".new"
    new.write_bytes(struct.pack("<I", COUNT) + element * COUNT)
    new.rename(store / "a" / "c" / "0")


@pytest.fixture
def store(tmp_path):
    store = tmp_path / "store"
    (store / "a" / "c").mkdir(parents=True)
    (store / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group"}))
    (store / "a" / "zarr.json").write_text(
        json.dumps(
            {
                "zarr_format": 3,
                "node_type": "array",
                "shape": [COUNT],
                "data_type": "string",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [COUNT]}},
                "chunk_key_encoding": {"name": "default"},
                "fill_value": "",
                "codecs": [{"name": "vlen-utf8"}],
            }
        )
    )
    put(store, b"a")
    return store


def open_at_random(path):
    """Opens a file without read-ahead."""
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    return file


# Invariant (reading): A file that was made when it was opened fails with ESTALE once the elements have changed.
@pytest.mark.parametrize("name", ["files/a/a.txt", "v3/a/c/0", "v2/a/0"])
def test_an_old_reader_gets_estale_and_brings_no_old_bytes_into_pages(store, mounted, name):
    path = mounted(store).path / ".zarrfs" / name
    old = open_at_random(path)
    assert b"aaaa" in os.pread(old, 100, 0)
    put(store, b"b")
    time.sleep(1.5)
    new = open_at_random(path)
    assert b"bbbb" in os.pread(new, 4096, 0)
    with pytest.raises(OSError) as failed:
        os.pread(old, 4096, OFFSET)
    assert failed.value.errno == errno.ESTALE
    os.close(old)
    assert b"aaaa" not in os.pread(new, 1 << 24, 0)
    os.close(new)
    assert b"aaaa" not in path.read_bytes()
