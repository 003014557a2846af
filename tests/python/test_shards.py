"""Shards as directories: what their indexes say, and inner chunks as they are stored."""

import errno
import gzip
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


def nested(store):
    """Writes shards of 8x8 with shards of 4x4 in them, with chunks of 2x2 in these; returns the array."""
    inner = zarr.codecs.ShardingCodec(chunk_shape=(2, 2), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.GzipCodec()])
    outer = zarr.codecs.ShardingCodec(chunk_shape=(4, 4), codecs=[inner], index_location="start")
    array = zarr.create_array(
        store, name="n", shape=(16, 16), chunks=(8, 8), dtype="int16", fill_value=0, serializer=outer, compressors=None,
        filters=None,
    )  # fmt: skip
    array[8:12, 0:8] = np.arange(1, 33).reshape(4, 8)
    return array


def test_a_shard_in_a_shard_is_a_directory(tmp_path, mounted):
    array = nested(tmp_path / "s.zarr")
    folder = shards(mounted(tmp_path / "s.zarr")) / "n"
    assert os.listdir(folder) == ["1.0"]
    assert sorted(os.listdir(folder / "1.0")) == ["0.0", "0.1", "index.json"]
    outer = json.loads((folder / "1.0/index.json").read_text())
    stored = (tmp_path / "s.zarr/n/c/1/0").read_bytes()
    assert outer["length"] == len(stored) and outer["offset"] == outer["index"]["offset"] == 0
    for name in ("0.0", "0.1"):
        inner = folder / "1.0" / name
        said = json.loads((inner / "index.json").read_text())
        assert (said["offset"], said["length"]) == tuple(outer["chunks"][name].values())
        assert said["key"] == "n/c/1/0" and said["index"]["checksum"] == "correct" and said["unused"] == 0
        assert sorted(os.listdir(inner)) == ["0.0", "0.1", "1.0", "1.1", "index.json"]
        bytes = stored[said["offset"] :][: said["length"]]
        for chunk, place in said["chunks"].items():
            content = (inner / chunk).read_bytes()
            assert content == bytes[place["offset"] :][: place["length"]]
            [row, column] = [2 * int(index) for index in chunk.split(".")]
            column += 4 * int(name[2:])
            expected = array[8 + row : 10 + row, column : column + 2].astype("<i2")
            assert gzip.decompress(content) == expected.tobytes()
    for name in ("1.0", "0.0/0.2", "0.0/0.0/0.0", "0.0/index.json/x", "0.0/x"):
        assert not os.path.lexists(folder / "1.0" / name), name


def test_an_index_in_a_shard_that_does_not_read_says_why(tmp_path, mounted):
    nested(tmp_path / "s.zarr")
    path = tmp_path / "s.zarr/n/c/1/0"
    stored = bytearray(path.read_bytes())
    # The last bytes are those of the index of the last shard within.
    stored[-1] ^= 1
    path.write_bytes(stored)
    folder = shards(mounted(tmp_path / "s.zarr")) / "n/1.0"
    assert json.loads((folder / "index.json").read_text())["index"]["checksum"] == "correct"
    faults = [json.loads((folder / name / "index.json").read_text()).get("error") for name in ("0.0", "0.1")]
    [fault] = [fault for fault in faults if fault]
    assert "n/c/1/0" in fault and "checksum" in fault
    assert os.listdir(folder / f"0.{faults.index(fault)}") == ["index.json"]


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
