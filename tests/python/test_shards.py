"""Shards as directories: what their indexes say, and inner chunks as they are stored."""

import errno
import json
import os

import numpy as np
import pytest
import zarr

import mounting


@pytest.fixture
def made(tmp_path):
    store = tmp_path / "s.zarr"
    root = zarr.create_group(store, zarr_format=3)
    codec = [zarr.codecs.GzipCodec(level=1)]
    array = root.create_array("g/a", shape=(8, 8), chunks=(2, 4), shards=(4, 8), dtype="int16", compressors=codec)
    array[0:2] = np.arange(16).reshape(2, 8)
    array[4:8] = 3
    root.create_array("plain", shape=(4,), chunks=(2,), dtype="int8")[:] = 1
    return store


def shards(mount):
    return mount.path / ".zarrfs/shards"


def test_a_shard_is_its_index_and_its_inner_chunks(made, mounted):
    mount = mounted(made)
    folder = shards(mount) / "g/a"
    assert sorted(os.listdir(shards(mount))) == ["g", "plain"]
    assert sorted(os.listdir(folder)) == ["0.0", "1.0"]
    assert os.listdir(shards(mount) / "plain") == []
    first = folder / "0.0"
    assert sorted(os.listdir(first)) == ["0.0", "0.1", "index.json"]
    assert sorted(os.listdir(folder / "1.0")) == ["0.0", "0.1", "1.0", "1.1", "index.json"]
    said = json.loads((first / "index.json").read_text())
    stored = (made / "g/a/c/0/0").read_bytes()
    assert said["key"] == "g/a/c/0/0" and said["length"] == len(stored) and said["chunks_per_shard"] == [2, 2]
    assert said["index"] == {"offset": len(stored) - 68, "length": 68, "checksum": "correct"}
    assert said["stored_chunks"] == 2 and said["unused"] == 0
    for name, place in said["chunks"].items():
        chunk = (first / name).read_bytes()
        assert chunk == stored[place["offset"] :][: place["length"]]
        assert os.stat(first / name).st_size == len(chunk)
    decoded = zarr.open_array(made / "g/a")[0:2, 4:8]
    import gzip

    assert gzip.decompress((first / "0.1").read_bytes()) == decoded.astype("<i2").tobytes()


def test_other_names_are_none(made, mounted):
    mount = mounted(made)
    folder = shards(mount) / "g/a"
    for name in ("0.1", "00.0", "0", "2.0", "x", "0.0/1.0", "0.0/0.2", "0.0/x", "0.0/0.0/x", "../none"):
        assert not os.path.exists(folder / name), name
    with pytest.raises(OSError) as error:
        (folder / "new").write_bytes(b"")
    assert error.value.errno in (errno.EROFS, errno.EPERM, errno.EACCES)


def test_a_corrupt_index_says_why(made, mounted):
    path = made / "g/a/c/0/0"
    stored = bytearray(path.read_bytes())
    stored[-20] ^= 1
    path.write_bytes(stored)
    mount = mounted(made)
    first = shards(mount) / "g/a/0.0"
    said = json.loads((first / "index.json").read_text())
    assert "checksum" in said["error"] and said["index"]["checksum"] == "wrong"
    assert os.listdir(first) == ["index.json"]
    with pytest.raises(OSError) as error:
        (first / "0.0").read_bytes()
    assert error.value.errno == errno.EIO
    path.write_bytes(b"short")
    mounting.wait_until(lambda: "no room" in json.loads((first / "index.json").read_text()).get("error", ""))


def test_unused_bytes_are_told(made, mounted):
    path = made / "g/a/c/1/0"
    stored = path.read_bytes()
    # Bytes between the inner chunks and the index, which writers leave that change a shard in place.
    path.write_bytes(stored[:-68] + b"unused" + stored[-68:])
    mount = mounted(made)
    said = json.loads((shards(mount) / "g/a/1.0/index.json").read_text())
    assert said["unused"] == 6 and said["stored_chunks"] == 4


def test_listings_read_no_index(made, mounted):
    mount = mounted(made)

    def requests():
        stats = json.loads((mount.path / ".zarrfs/stats.json").read_text())
        return stats["store_get_bytes"]

    os.listdir(shards(mount) / "g/a")
    before = requests()
    assert len(os.listdir(shards(mount) / "g/a")) == 2
    assert requests() == before


def test_the_second_mount_has_them_too(made, mounted, tmp_path):
    second = tmp_path / "files"
    second.mkdir()
    mount = mounted(made, "--view", "files")
    assert sorted(os.listdir(shards(mount) / "g/a")) == ["0.0", "1.0"]
