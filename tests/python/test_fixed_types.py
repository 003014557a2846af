"""Types of a fixed length: dates, fixed strings, raw bytes and structures made by zarr-python, and numbers and
text by the codecs that make bytes of them themselves. `.npy` has numpy's own type and values.

Every type by both dialects, both byte orders and memory orders, with chunks that are missing and fill values
that are not zero.
"""

import warnings

import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs.pcodec import PCodec
from zarr.codecs import BytesCodec, TransposeCodec, ZstdCodec

import layout
import object_stores as made

SHAPE = (7, 5)
CHUNKS = (3, 2)
MISSING = (1, 1)

# Random arrays of a codec.
ARRAYS = 200

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


WORDS = ["", "a", "\u4e2d\u6587", "\u00e9t\u00e9"]


def numbers(random, shape, dtype):
    """Returns numbers of a type, of floats also those that are none."""
    dtype = np.dtype(dtype)
    if dtype.kind == "U":
        return random.choice(WORDS, shape).astype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind == "f":
        special = [np.nan, np.inf, -np.inf, -0.0, 1.5, 0.1]
        values = np.where(
            random.random(shape) < 0.2, random.choice(special, shape), random.normal(size=shape)
        )
        return values.astype(dtype)
    info = np.iinfo(dtype)
    native = info.dtype.newbyteorder("=")
    return random.integers(info.min, info.max, shape, native, endpoint=True).astype(dtype)


LISTED = ["<i4", ">i2", "|u1", "<i8", "<f4", ">f8", "<f2", "|b1", "<U4", ">U3"]
CODED = ["<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
FIXED = {
    "json2": (LISTED, lambda random, dtype: numcodecs.JSON(), "filters"),
    "msgpack2": (LISTED, lambda random, dtype: numcodecs.MsgPack(), "filters"),
    "pcodec": (CODED, lambda random, dtype: PCodec(level=int(random.integers(0, 9))), "filters"),
    "pcodec-last": (CODED, lambda random, dtype: PCodec(), "compressor"),
    "categorize": (
        ["<U4", ">U3"],
        lambda random, dtype: numcodecs.Categorize(
            WORDS, dtype=dtype, astype=str(random.choice(["u1", ">u2"]))
        ),
        "filters",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_random_arrays_of_fixed_types(tmp_path, mounted, name):
    dtypes, codec_of, place = FIXED[name]
    store = tmp_path / "fixed.zarr"
    made.write_group(store)
    expected = {}
    for number in range(ARRAYS):
        random = np.random.default_rng([7, number])
        shape, chunks = made.random_shape(random, int(name == "msgpack2"))
        dtype = dtypes[number % len(dtypes)]
        codec = codec_of(random, dtype)
        config = codec.get_config()
        members = {"filters": None, "compressor": None}
        members[place] = [config] if place == "filters" else config
        expected[f"a{number}"] = made.write_array(
            store / f"a{number}",
            np.asarray(numbers(random, shape, dtype)),
            chunks,
            codec,
            random,
            order=str(random.choice(["C", "F"])),
            fill_value=None,
            blank="" if "U" in dtype else 0,
            **members,
        )
    mount = mounted(store)
    for array, values in expected.items():
        little = values.astype(values.dtype.newbyteorder("<"))
        found = np.load(layout.decoded(mount.files, store, array, "npy"), mmap_mode="r")
        assert (found.dtype, found.shape) == (little.dtype, little.shape), array
        if little.dtype.kind == "f" and not name.startswith("pcodec"):
            # A NaN of a list is any NaN.
            np.testing.assert_array_equal(found, little, array)
        else:
            assert found.tobytes() == little.tobytes(), array
        raw = layout.decoded(mount.files, store, array, "raw").read_bytes()
        assert raw == found.tobytes(), array
