"""Fill values as metadata can spell them: arrays without any chunk read as exactly those bits."""

import json
import struct

import numpy as np
import pytest

import layout

NAN32 = struct.pack("<I", 0x7FC00000)
NAN64 = struct.pack("<Q", 0x7FF8000000000000)


def f4(value):
    return struct.pack("<f", value)


def f8(value):
    return struct.pack("<d", value)


V3 = [
    ("bool", True, b"\x01"),
    ("bool", False, b"\x00"),
    ("int8", -128, b"\x80"),
    ("uint8", 255, b"\xff"),
    ("int16", -2, b"\xfe\xff"),
    ("uint16", 65535, b"\xff\xff"),
    ("int32", -(2**31), struct.pack("<i", -(2**31))),
    ("uint32", 2**32 - 1, b"\xff" * 4),
    ("int64", -(2**63), struct.pack("<q", -(2**63))),
    ("int64", 2**53 + 1, struct.pack("<q", 2**53 + 1)),
    ("uint64", 2**64 - 1, b"\xff" * 8),
    ("float16", 1.5, struct.pack("<e", 1.5)),
    ("float16", "NaN", struct.pack("<H", 0x7E00)),
    ("float16", "0x7c01", struct.pack("<H", 0x7C01)),
    ("float16", "-Infinity", struct.pack("<H", 0xFC00)),
    ("float32", 0.1, f4(0.1)),
    ("float32", -0.0, f4(-0.0)),
    ("float32", 3, f4(3)),
    ("float32", 1e20, f4(1e20)),
    ("float32", "NaN", NAN32),
    ("float32", "Infinity", f4(float("inf"))),
    ("float32", "-Infinity", f4(float("-inf"))),
    ("float32", "0x7fc00001", struct.pack("<I", 0x7FC00001)),
    ("float32", "0xff800001", struct.pack("<I", 0xFF800001)),
    ("float64", 1e-320, f8(1e-320)),
    ("float64", 0.1, f8(0.1)),
    ("float64", "NaN", NAN64),
    ("float64", "Infinity", f8(float("inf"))),
    ("float64", "0xfff0000000000abc", struct.pack("<Q", 0xFFF0000000000ABC)),
    ("complex64", [1.5, -2], f4(1.5) + f4(-2)),
    ("complex64", ["NaN", "-Infinity"], NAN32 + f4(float("-inf"))),
    ("complex64", ["0x7fc00001", 0], struct.pack("<I", 0x7FC00001) + f4(0)),
    ("complex128", [0, "Infinity"], f8(0) + f8(float("inf"))),
    ("complex128", ["NaN", "NaN"], NAN64 + NAN64),
    ("r16", [1, 255], b"\x01\xff"),
    ("r24", [3, 2, 1], b"\x03\x02\x01"),
]

V2 = [
    ("|b1", True, b"\x01"),
    ("|b1", None, b"\x00"),
    ("|i1", -7, b"\xf9"),
    (">i2", -2, b"\xfe\xff"),
    ("<i4", None, b"\x00" * 4),
    ("<i4", 7.0, b"\x07\x00\x00\x00"),
    (">u8", 2**64 - 1, b"\xff" * 8),
    (">u8", 2**63 + 1, struct.pack("<Q", 2**63 + 1)),
    ("<f2", "NaN", struct.pack("<H", 0x7E00)),
    (">f4", "NaN", NAN32),
    ("<f4", "-Infinity", f4(float("-inf"))),
    (">f4", 0.1, f4(0.1)),
    ("<f8", "Infinity", f8(float("inf"))),
    (">f8", None, b"\x00" * 8),
    (">f8", 1, f8(1)),
    ("<c8", [1.0, "NaN"], f4(1) + NAN32),
    (">c16", [-1.5, 2], f8(-1.5) + f8(2)),
    (">c16", None, b"\x00" * 16),
]


def v3_document(data_type, fill_value):
    size = int("".join(filter(str.isdigit, data_type)) or 8)
    endian = {} if size == 8 or data_type[0] == "r" else {"endian": "little"}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [3],
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": fill_value,
        "codecs": [{"name": "bytes", "configuration": endian}],
        "attributes": {},
    }


def v2_document(data_type, fill_value):
    return {
        "zarr_format": 2,
        "shape": [3],
        "chunks": [2],
        "dtype": data_type,
        "compressor": None,
        "filters": None,
        "fill_value": fill_value,
        "order": "C",
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Writes one array for each fill value: /v3/<n> and /v2/<n>, as two stores."""
    folder = tmp_path_factory.mktemp("fills")
    group3 = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    dump(folder / "v3.zarr" / "zarr.json", group3)
    for number, (data_type, fill_value, _) in enumerate(V3):
        path = folder / "v3.zarr" / f"a{number}" / "zarr.json"
        dump(path, v3_document(data_type, fill_value))
    dump(folder / "v2.zarr" / ".zgroup", {"zarr_format": 2})
    for number, (data_type, fill_value, _) in enumerate(V2):
        path = folder / "v2.zarr" / f"a{number}" / ".zarray"
        dump(path, v2_document(data_type, fill_value))
    return folder


def dump(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("version, cases", [("v2.zarr", V2), ("v3.zarr", V3)])
def test_fill_values(store, mounted, version, cases):
    files = mounted(store / version).files
    wrong = []
    for number, (data_type, fill_value, element) in enumerate(cases):
        name = f"a{number}"
        path = layout.decoded(files, store / version, name, "raw")
        try:
            found = path.read_bytes()
            mapped = np.load(path.with_suffix(".npy"), mmap_mode="r").tobytes()
        except (OSError, ValueError) as error:
            found = mapped = str(error)
        if found != element * 3 or mapped != found:
            wrong.append(f"{data_type} {fill_value!r}: {found!r}")
    assert not wrong, "\n".join(wrong)
