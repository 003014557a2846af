"""Dates, fixed strings, raw bytes and structures made by zarr-python: `.npy` has numpy's own type and values.

Every type by both dialects, both byte orders and memory orders, with chunks that are missing and fill values
that are not zero.
"""

import warnings

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec

import layout
import object_stores as made

SHAPE = (7, 5)
CHUNKS = (3, 2)
MISSING = (1, 1)

UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "10us"]
NESTED = [("id", "<i4"), ("place", [("x", "<f4"), ("y", "<f8")]), ("word", "<U3")]
MIXED = [("a", ">i2"), ("b", "|S3"), ("c", "<f8"), ("d", "|u1"), ("e", ">c8"), ("f", ">M8[s]")]

DTYPES = [
    *(f"<M8[{unit}]" for unit in UNITS),
    *(f">m8[{unit}]" for unit in UNITS),
    "|S1",
    "|S7",
    "<U1",
    "<U5",
    ">U4",
    "|V3",
    "|V16",
    [("only", "<i8")],
    [("a", "<i2"), ("b", "|S3"), ("c", "<f8"), ("d", "|b1")],
    NESTED,
    MIXED,
]

TEXT = ["", "a", "\u00e9t\u00e9", "\u4e2d\u6587", "\U0001f600", "longer than most"]


def content(random, dtype, shape):
    """Returns values of a type, all bits of numbers being used."""
    if dtype.fields:
        values = np.zeros(shape, dtype)
        for name in dtype.names:
            field, *_ = dtype.fields[name]
            values[name] = content(random, field.base, shape + field.shape)
        return values
    if dtype.kind == "U":
        return random.choice(TEXT, shape).astype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    count = int(np.prod(shape))
    values = np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()
    if dtype.kind in "Mm" and count:
        values[0] = np.datetime64("NaT") if dtype.kind == "M" else np.timedelta64("NaT")
    return values.reshape(shape)


def create(root, name, version, dtype, order):
    """Makes an array of a type, the parts of v3 that say byte order and memory order among them."""
    parts = {"compressors": None, "filters": None}
    if version == 2:
        parts["order"] = order
        parts["compressors"] = None
    else:
        is_big = dtype.str[0] == ">"
        parts["serializer"] = BytesCodec(endian="big" if is_big else "little")
        parts["compressors"] = [ZstdCodec(level=1)]
        if order == "F":
            parts["filters"] = [TransposeCodec(order=(1, 0))]
    with warnings.catch_warnings():
        # Of types that have no text in the specification yet.
        warnings.simplefilter("ignore")
        return root.create_array(name, shape=SHAPE, chunks=CHUNKS, dtype=dtype, **parts)


def little(dtype):
    """Returns the type as `.npy` has it."""
    return dtype.newbyteorder("<")


@pytest.mark.parametrize("version", [2, 3])
def test_types_of_numpy(tmp_path, mounted, version):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=version)
    expected = {}
    for number, described in enumerate(DTYPES):
        dtype = np.dtype(described)
        if version == 3 and described is MIXED:
            # v3 has one byte order for all fields.
            continue
        for order in "CF":
            name = f"a{number}{order}"
            array = create(root, name, version, dtype, order)
            data = content(np.random.default_rng(number), dtype, SHAPE)
            array[...] = data
            key = array.metadata.encode_chunk_key(MISSING)
            (store / name / key).unlink()
            box = layout.chunk_box(MISSING, SHAPE, CHUNKS)
            data[box] = np.asarray(array.fill_value, dtype)
            expected[name] = data
    files = mounted(store).files
    assert len(expected) > 70
    for name, data in expected.items():
        found = np.load(layout.decoded(files, store, name, "npy"), mmap_mode="r")
        assert found.dtype == little(data.dtype), name
        assert found.shape == data.shape, name
        # Bit for bit, so that NaN and NaT count too.
        assert found.tobytes() == data.astype(found.dtype).tobytes(), name
        assert found.tolist() == data.tolist() or has_nan(data), name
        raw = layout.decoded(files, store, name, "raw").read_bytes()
        assert raw == found.tobytes(), name
        chunk = np.load(files / name / "chunks" / "2.1.npy")
        assert chunk.tobytes() == found[6:, 2:4].tobytes(), name


def test_subarrays(tmp_path, mounted):
    """zarr-python writes no fields with a shape of their own, so the store is made by hand."""
    dtype = np.dtype([("m", "<f4", (2, 3)), ("n", ">i2", (4,)), ("o", [("p", ">U2", (2,))], (2,))])
    data = content(np.random.default_rng(3), dtype, (3,))
    store = tmp_path / "made.zarr"
    made.dump(
        store / ".zarray",
        {
            "zarr_format": 2,
            "shape": [5],
            "chunks": [3],
            "dtype": dtype.descr,
            "compressor": None,
            "filters": None,
            "fill_value": None,
            "order": "C",
        },
    )
    (store / "0").write_bytes(data.tobytes())
    found = np.load(mounted(store).files / "made.npy")
    assert found.dtype == little(dtype)
    expected = np.concatenate([data, np.zeros(2, dtype)]).astype(found.dtype)
    assert found.tobytes() == expected.tobytes()


def has_nan(data):
    """Says whether values are not equal to themselves."""
    return data.tolist() != data.tolist() or bool(np.any(data.copy() != data))
