"""Shards by their keys: what `info` and `map` tell of their indexes, and inner chunks as `cat` prints them."""

import errno
import gzip
import http.server
import json
import os
import subprocess
import threading
from collections import Counter

import numpy as np
import pytest
import zarr

import layout
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


def run(*command, status=0):
    """Runs a command of zarrfs, which has to end with `status`; returns the bytes of stdout and the text of stderr."""
    done = subprocess.run([mounting.program(), *map(str, command)], capture_output=True)
    assert done.returncode == status, (command, done)
    return done.stdout, done.stderr.decode()


def info_of(key, status=0):
    return json.loads(run("info", "--json", key, status=status)[0])


def test_a_shard_is_its_index_and_its_inner_chunks(made, mounted):
    key = made / "g/a/c/0/0"
    stored = key.read_bytes()
    decoded = zarr.open_array(made / "g/a")[0:2, 4:8]
    # The store itself, and by way of a mount.
    for key in (key, mounted(made).path / "g/a/c/0/0"):
        said = info_of(key)
        assert said["key"].endswith("c/0/0") and said["length"] == len(stored) and said["chunks_per_shard"] == [2, 2]
        assert said["index"] == {"offset": len(stored) - 68, "length": 68, "checksum": "correct"}
        assert said["stored_chunks"] == 2 and said["unused"] == 0
        assert list(said["chunks"]) == ["0.0", "0.1"]
        for name, place in said["chunks"].items():
            assert run("cat", f"{key}@{name}")[0] == stored[place["offset"] :][: place["length"]]
            assert info_of(f"{key}@{name}")["stored"] == place
        for name in ("0.1", "1"):
            assert gzip.decompress(run("cat", f"{key}@{name}")[0]) == decoded.astype("<i2").tobytes()
        sheet = run("info", key)[0].decode()
        place = said["chunks"]["0.1"]
        assert f"0.1: {place['length']} bytes at {place['offset']}" in sheet
        assert f"68 bytes at {len(stored) - 68}, checksum correct" in sheet
        drawn = json.loads(run("map", "--json", "--by", "size", key)[0])
        cells = {(cell["row"], cell["column"]): cell["bytes"] for cell in drawn["cells"]}
        assert drawn["grid"] == [2, 2] and drawn["present"] == 2
        assert cells == {(0, 0): said["chunks"]["0.0"]["length"], (0, 1): place["length"]}
        assert "2 of 4 chunks stored" in run("map", key)[0].decode()


def test_missing_inner_chunks_are_errors(made):
    key = f"{made}/g/a/c/0/0"
    for name in ("1.0", "2"):
        out, error = run("cat", f"{key}@{name}", status=1)
        assert out == b"" and "the inner chunk is not stored" in error
        assert info_of(f"{key}@{name}", status=1)["stored"] is None
    for name in ("2.0", "4", "0.0.0", "x", "", "00", "-1", "0.0@0"):
        out, error = run("cat", f"{key}@{name}", status=2)
        assert out == b"" and ("no such inner chunk" in error or "is not a shard" in error), error
    assert "choose one of @0 to @3 (@1.1)" in run("cat", f"{key}@4", status=2)[1]
    # No shard at all, one that is not stored, and none that can be.
    assert "a chunk, not a shard" in run("cat", f"{made}/plain/c/0@0", status=2)[1]
    (made / "g/a/c/1/0").unlink()
    assert "the shard is not stored" in run("cat", f"{made}/g/a/c/1/0@0", status=2)[1]
    assert "no such" in run("cat", f"{made}/g/a/c/9/9@0", status=2)[1]
    assert "no such" in run("cat", f"{made}/g/a@0", status=2)[1]
    # A key with that name comes first.
    (made / "g/a/c/0/0@0").write_bytes(b"own")
    assert run("cat", f"{key}@0")[0] == b"own"


def test_a_corrupt_index_is_an_error_with_its_cause(made):
    key = made / "g/a/c/0/0"
    stored = bytearray(key.read_bytes())
    stored[-20] ^= 1
    key.write_bytes(stored)
    said = info_of(key, status=1)
    assert "checksum" in said["error"] and said["index"]["checksum"] == "wrong"
    assert "checksum" in run("cat", f"{key}@0", status=2)[1]
    assert "checksum" in run("map", key, status=2)[1]
    key.write_bytes(b"short")
    assert "too short" in info_of(key, status=1)["error"]


def test_unused_bytes_of_a_shard_are_counted(made):
    key = made / "g/a/c/1/0"
    stored = key.read_bytes()
    # Bytes between the inner chunks and the index, which writers leave that change a shard in place.
    key.write_bytes(stored[:-68] + b"unused" + stored[-68:])
    said = info_of(key)
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


def test_a_shard_in_a_shard_has_an_index_too(tmp_path):
    array = nested(tmp_path / "s.zarr")
    key = tmp_path / "s.zarr/n/c/1/0"
    outer, stored = info_of(key), key.read_bytes()
    assert outer["length"] == len(stored) and outer["offset"] == outer["index"]["offset"] == 0
    assert list(outer["chunks"]) == ["0.0", "0.1"]
    for name, place in outer["chunks"].items():
        said = info_of(f"{key}@{name}")
        assert (said["offset"], said["length"]) == tuple(place.values())
        assert said["key"].endswith("c/1/0") and said["index"]["checksum"] == "correct" and said["unused"] == 0
        assert list(said["chunks"]) == ["0.0", "0.1", "1.0", "1.1"]
        shard = stored[said["offset"] :][: said["length"]]
        assert run("cat", f"{key}@{name}")[0] == shard
        for chunk, within in said["chunks"].items():
            content = run("cat", f"{key}@{name}@{chunk}")[0]
            assert content == shard[within["offset"] :][: within["length"]]
            [row, column] = [2 * int(index) for index in chunk.split(".")]
            column += 4 * int(name[2:])
            expected = array[8 + row : 10 + row, column : column + 2].astype("<i2")
            assert gzip.decompress(content) == expected.tobytes()
    run("cat", f"{key}@1.0@0", status=1)
    run("cat", f"{key}@0@0@0", status=2)


def test_a_corrupt_index_of_an_inner_shard_is_an_error_with_its_cause(tmp_path):
    nested(tmp_path / "s.zarr")
    key = tmp_path / "s.zarr/n/c/1/0"
    stored = bytearray(key.read_bytes())
    # The last bytes are those of the index of the last shard within.
    stored[-1] ^= 1
    key.write_bytes(stored)
    assert info_of(key)["index"]["checksum"] == "correct"
    done = [subprocess.run([mounting.program(), "info", "--json", f"{key}@{name}"], capture_output=True) for name in ("0.0", "0.1")]
    assert sorted(found.returncode for found in done) == [0, 1]
    [fault] = [json.loads(found.stdout)["error"] for found in done if found.returncode]
    assert "c/1/0" in fault and "checksum" in fault


def test_the_removed_directory_of_shards_names_its_replacement(made, mounted):
    mount = mounted(made)
    with pytest.raises(OSError) as error:
        os.listdir(mount.path / ".zarrfs/shards")
    assert error.value.errno == errno.ENOENT
    assert "zarrfs cat STORE/KEY@N" in (mount.path / ".zarrfs/errors").read_text()


def test_a_server_without_ranges_sends_each_shard_once(tmp_path, mounted):
    values = np.arange(64 * 64 * 64, dtype="f8").reshape(64, 64, 64)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(8, 8, 8), shards=(32, 64, 64), zarr_format=3)
    sent = Counter()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=tmp_path)

        def do_GET(self):
            sent[self.path] += 1
            super().do_GET()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mount = mounted(f"http://127.0.0.1:{server.server_port}/a.zarr")
        read = np.load(layout.decoded(mount.files, tmp_path / "a.zarr", "/", "npy"))
        server.shutdown()
    assert (read == values).all()
    shards = {path: count for path, count in sent.items() if path.startswith("/a.zarr/c/") and path[-1] != "/"}
    assert shards == {"/a.zarr/c/0/0/0": 1, "/a.zarr/c/1/0/0": 1}
