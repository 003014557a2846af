"""Chunks of objects that lie, nest or do not fit the memory: an error with its reason, and the daemon lives on."""

import errno
import os
import zlib

import msgpack
import numcodecs
import numpy as np
import pytest

import layout
import object_stores as made


def nested(depth):
    return b"[" + b"[" * depth + b"]" * depth + b',"b","|O",[2]]'


HOSTILE = {
    "json2": [
        b"",
        b"[",
        b"{}",
        b'["a","|O",[2]]',
        b'["a","b","c","|O",[2]]',
        b'["a","b","|O",[4000000000]]',
        b'["a","b","|O",[4294967296,4294967296]]',
        b'["a","b","|O",[' + b"1," * 10000 + b"2]]",
        b'["a","b","|O",[2]]x',
        b'["a","b",17,[2]]',
        b'["a","\xff","|O",[2]]',
        nested(10_000),
        nested(3_000_000),
        b'["' + b"x" * 20_000_000 + b'","b","|O",[2]]',
        b"[" + b"[]," * 3_000_000 + b'"|O",[2]]',
    ],
    "msgpack2": [
        b"",
        b"\xc1",
        b"\x94\xa1a\xa1b\xa2|O\x91\x03",
        b"\xdd\xff\xff\xff\xff",
        b"\x94\xdd\xff\xff\xff\xff" + b"\xdd\xff\xff\xff\xff" * 1000,
        b"\x94\xdb\xff\xff\xff\xffabc",
        b"\x94\xc6\xff\xff\xff\xffabc",
        b"\x94\xdf\xff\xff\xff\xff\xc0",
        b"\x94\xa1a\xc7\x01\x05x\xa2|O\x91\x02",
        b"\x94" + b"\x91" * 5_000_000 + b"\xc0\xa1b\xa2|O\x91\x02",
        b"\x94\xdc\xff\xff" + b"\xc0" * 65535 * 60,
        b"\x94" + msgpack.packb([None] * 6_000_000) + b"\xa1b\xa2|O\x91\x02",
    ],
    "vlen-utf8": [
        b"",
        b"\x02\0\0",
        b"\xff\xff\xff\xff",
        b"\x02\0\0\0\xff\xff\xff\xff",
        b"\x02\0\0\0\x01\0\0\0a\xfe\xff\xff\xffb",
        b"\x03\0\0\0" + b"\0\0\0\0" * 3,
        b"\x02\0\0\0" + b"\x01\0\0\0\xff" * 2,
    ],
    "pickle": [b"cos\nsystem\n(S'true'\ntR."],
    "no-such-codec": [b"x"],
}

MEBIBYTE = 1 << 20

# MessagePack has values without a form as JSON.
DAMAGED = {errno.EIO, errno.EFBIG, errno.EOPNOTSUPP}


def test_hostile_chunks(tmp_path, daemon):
    store = tmp_path / "hostile.zarr"
    made.write_group(store)
    document = {
        "zarr_format": 2,
        "shape": [2],
        "chunks": [2],
        "dtype": "|O",
        "compressor": None,
        "fill_value": None,
        "order": "C",
    }
    names, large = [], set()
    for codec, chunks in HOSTILE.items():
        for number, chunk in enumerate(chunks):
            for packed in (False, True):
                name = f"{codec}-{number}-{packed}"
                compressor = {"id": "zlib", "level": 9} if packed else None
                members = {"filters": [{"id": codec}], "compressor": compressor}
                made.dump(store / name / ".zarray", {**document, **members})
                stored = zlib.compress(chunk, 9) if packed else chunk
                (store / name / "0").write_bytes(stored)
                names.append(name)
                if len(chunk) > MEBIBYTE:
                    large.add(name)
    good = np.array(["still", "here"], dtype=object)
    made.dump(store / "good" / ".zarray", {**document, "filters": [{"id": "json2"}]})
    (store / "good" / "0").write_bytes(numcodecs.JSON().encode(good))
    mount = daemon(store, "--memory", "16M")
    for name in names:
        refused = name.startswith(("pickle", "no-such-codec"))
        # An array of a type that is not known has no lines of text. What takes long is tried in one way.
        suffixes = ("raw", "npy") if refused else ("txt",) if name in large else ("raw", "npy", "txt")
        for suffix in suffixes:
            path = layout.decoded(mount.files, store, name, suffix)
            expected = {errno.EOPNOTSUPP} if refused else DAMAGED
            for call in (path.read_bytes,) if name in large else (path.stat, path.read_bytes):
                with pytest.raises(OSError) as error:
                    call()
                assert error.value.errno in expected, (name, suffix)
    good = (mount.files / "good" / "good.txt").read_text()
    assert good == '"still"\n"here"\n'
    # 16 MiB of budget, the program itself, and what malloc keeps.
    assert mount.peak_bytes() < 160 * MEBIBYTE
    said = mount.complaints()
    assert "panic" not in said
    assert "pickle-0-False" in said and "a pickle can run any program" in said
    assert "no-such-codec-0-True: codecs: filter no-such-codec does not encode objects" in said


def test_elements_beyond_half_of_the_memory(tmp_path, daemon):
    store = tmp_path / "large.zarr"
    made.write_group(store)
    random = np.random.default_rng(1)
    codec = numcodecs.VLenUTF8()
    shapes = {"large": 100, "small": 10}
    for name, count in shapes.items():
        values = made.random_objects(random, (count,), lambda _: "x" * 100_000)
        folder = store / name
        made.dump(
            folder / ".zarray",
            {
                "zarr_format": 2,
                "shape": [count],
                "chunks": [4],
                "dtype": "|O",
                "compressor": {"id": "zlib", "level": 1},
                "filters": [codec.get_config()],
                "fill_value": "",
                "order": "C",
            },
        )
        for start in range(0, count, 4):
            chunk = made.filled((4,), object, "")
            part = values[start : start + 4]
            chunk[: len(part)] = part
            (folder / str(start // 4)).write_bytes(zlib.compress(codec.encode(chunk)))
    mount = daemon(store, "--memory", "12M")
    for _ in range(2):
        for suffix in ("raw", "txt", "npy"):
            with pytest.raises(OSError) as error:
                layout.decoded(mount.files, store, "large", suffix).read_bytes()
            assert error.value.errno == errno.EFBIG, suffix
        raw = layout.decoded(mount.files, store, "small", "raw").read_bytes()
        assert len(raw) == 10 * 100_004
    chunk = mount.files / "large" / "chunks" / "24.txt"
    assert len(chunk.read_bytes()) == 4 * 100_003
    # As wide as the longest, four bytes a letter: 4 MB, and 1 MB of elements. Half of 12 MiB holds both.
    small = np.load(layout.decoded(mount.files, store, "small", "npy"))
    assert small.tolist() == ["x" * 100_000] * 10
    assert "half of --memory" in mount.complaints()
    assert os.listdir(mount.files / "large")
