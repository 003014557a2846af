"""Stores made on the spot with zarr-python: every data type by byte order, memory order and codec.

Each data type meets each codec, in one of these orders.

Fill values have a file of their own, since zarr-python cannot write most of them.
"""

import itertools
import json

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.core.metadata import ArrayV3Metadata

import layout

KINDS = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
SHAPE = (7, 5)
CHUNKS = (3, 2)

V2_CODECS = {
    "none": None,
    "zlib": numcodecs.Zlib(1),
    "gzip": numcodecs.GZip(6),
    "zstd": numcodecs.Zstd(3),
    **{
        f"blosc-{name}-{shuffle}": numcodecs.Blosc(name, 5, shuffle)
        for name in ("lz4", "lz4hc", "blosclz", "zstd", "zlib")
        for shuffle in (0, 1, 2)
    },
}

V3_CODECS = {
    "none": [],
    "crc32c": [Crc32cCodec()],
    "gzip": [GzipCodec(level=1)],
    "zstd": [ZstdCodec(level=3, checksum=True)],
    "zstd-crc32c": [ZstdCodec(level=1), Crc32cCodec()],
    "gzip-zstd": [GzipCodec(level=1), ZstdCodec(level=1)],
    "blosc-lz4": [BloscCodec(cname="lz4", shuffle="shuffle")],
    "blosc-zstd": [BloscCodec(cname="zstd", shuffle="bitshuffle")],
}


def cases(codecs):
    """Yields data types, byte orders, memory orders, and some of the codecs: others for the next order."""
    for kind in KINDS:
        orders = list(itertools.product("<" if np.dtype(kind).itemsize == 1 else "<>", "CF"))
        for (number, order), (place, codec) in itertools.product(enumerate(orders), enumerate(codecs)):
            if codec == "none" or (number + place) % len(orders) == 0:
                yield kind, *order, codec


def content(kind, shape, seed=0):
    """Returns values over the whole range of a data type, special ones of floats included."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(f"<{kind}")
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    size = int(np.prod(shape))
    values = np.frombuffer(random.bytes(size * dtype.itemsize), dtype).copy()
    if dtype.kind in "fc" and size > 4:
        values[:4] = [np.nan, np.inf, -np.inf, -0.0]
    return values.reshape(shape)


def same(files, store, name, expected):
    """Compares an array's decoded files with what was written, bit for bit."""
    little = np.ascontiguousarray(expected)
    little = little.astype(little.dtype.newbyteorder("<"), copy=False)
    raw = layout.decoded(files, store, name, "raw").read_bytes()
    assert raw == little.tobytes(), name
    mapped = np.load(layout.decoded(files, store, name, "npy"), mmap_mode="r")
    assert mapped.shape == expected.shape, name
    assert mapped.dtype == little.dtype, name
    assert mapped.tobytes() == raw, name


def accepted(files, name, expected):
    """Checks that zarr-python takes the metadata of the files view for final v3."""
    document = json.loads((files / name / "metadata.json").read_text())
    metadata = ArrayV3Metadata.from_dict(document)
    assert metadata.shape == expected.shape, name
    found = metadata.data_type.to_native_dtype()
    assert found.newbyteorder("=") == expected.dtype.newbyteorder("="), name


def write(array, data):
    """Writes an array, takes one chunk away, and returns what then has to be read."""
    array[...] = data
    index = (0, 1)
    expected = data.copy()
    expected[layout.chunk_box(index, SHAPE, CHUNKS)] = 0
    key = array.metadata.encode_chunk_key(index)
    (array.store_path.store.root / array.path / key).unlink()
    return expected


def test_v2(tmp_path, mounted):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=2)
    expected = {}
    for kind, endian, order, codec in cases(V2_CODECS):
        name = f"{kind}-{'le' if endian == '<' else 'be'}-{order}-{codec}"
        array = root.create_array(
            name,
            shape=SHAPE,
            chunks=CHUNKS,
            dtype=np.dtype(f"{endian}{kind}"),
            order=order,
            compressors=V2_CODECS[codec],
            fill_value=0,
        )
        data = content(kind, SHAPE)
        expected[name] = write(array, data.astype(array.dtype))
    files = mounted(store).files
    for name, data in expected.items():
        same(files, store, name, data)
        accepted(files, name, data)


def test_v3(tmp_path, mounted):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=3)
    expected = {}
    for kind, endian, order, codec in cases(V3_CODECS):
        word = None if np.dtype(kind).itemsize == 1 else {"<": "little", ">": "big"}[endian]
        name = f"{kind}-{word}-{order}-{codec}"
        array = root.create_array(
            name,
            shape=SHAPE,
            chunks=CHUNKS,
            dtype=np.dtype(f"<{kind}"),
            filters=[TransposeCodec(order=(1, 0))] if order == "F" else [],
            serializer=BytesCodec(endian=word),
            compressors=V3_CODECS[codec],
            fill_value=0,
        )
        expected[name] = write(array, content(kind, SHAPE))
    files = mounted(store).files
    for name, data in expected.items():
        same(files, store, name, data)
        accepted(files, name, data)


@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize("nested", [False, True])
def test_shards(tmp_path, mounted, index_location, nested):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=3)
    expected = {}
    for order, codec in itertools.product("CF", ("none", "zstd", "blosc-lz4")):
        inner = [BytesCodec(endian="big"), *V3_CODECS[codec]]
        if order == "F":
            inner.insert(0, TransposeCodec(order=(2, 0, 1)))
        serializer = ShardingCodec(
            chunk_shape=(2, 3, 2), codecs=inner, index_location=index_location
        )
        if nested:
            serializer = ShardingCodec(
                chunk_shape=(4, 6, 4), codecs=[serializer], index_location="end"
            )
        name = f"{order}-{codec}"
        array = root.create_array(
            name,
            shape=(19, 13, 9),
            chunks=(8, 12, 4),
            dtype="<f4",
            serializer=serializer,
            compressors=None,
            filters=None,
            fill_value=-1.5,
        )
        # Inner chunks are missing in some shards, and whole shards too.
        array[:3, 5:, :] = content("f4", (3, 8, 9), 1)
        array[10:19, 0:2, 3:] = content("f4", (9, 2, 6), 2)
        expected[name] = array[...]
    files = mounted(store).files
    for name, data in expected.items():
        same(files, store, name, data)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "shape, chunks",
    [
        ((), ()),
        ((0,), (4,)),
        ((3, 0, 2), (2, 2, 2)),
        ((1,), (1,)),
        ((5,), (8,)),
        ((2, 3, 2, 3, 2, 3), (1, 2, 2, 2, 1, 2)),
    ],
)
def test_unusual_shapes(tmp_path, mounted, version, shape, chunks):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=version)
    array = root.create_array(
        "a", shape=shape, chunks=chunks, dtype="<f8", fill_value=2.5
    )
    root.create_array(
        "missing", shape=shape, chunks=chunks, dtype="<f8", fill_value=2.5
    )
    data = content("f8", shape)
    array[...] = data
    files = mounted(store).files
    same(files, store, "a", np.asarray(data))
    same(files, store, "missing", np.full(shape, 2.5))
    for index in layout.chunk_indices(shape, chunks):
        name = layout.chunk_name(index)
        box = layout.chunk_box(index, shape, chunks)
        same_chunk = np.load(files / "a" / "chunks" / f"{name}.npy", mmap_mode="r")
        assert same_chunk.tobytes() == np.asarray(data[box]).tobytes()
        assert same_chunk.shape == np.asarray(data[box]).shape


@pytest.mark.parametrize("version", [2, 3])
def test_random_slices_of_a_mapped_file(tmp_path, mounted, version):
    shape, chunks = (61, 47, 53), (16, 20, 24)
    data = content("i4", shape)
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=version)
    root.create_array("a", shape=shape, chunks=chunks, dtype="<i4")[...] = data
    files = mounted(store).files
    path = layout.decoded(files, store, "a", "npy")
    random = np.random.default_rng(version)
    for _ in range(100):
        mapped = np.load(path, mmap_mode="r")
        box = tuple(random_slice(random, length) for length in shape)
        np.testing.assert_array_equal(mapped[box], data[box])


def random_slice(random, length):
    """Returns a slice, backwards and empty ones among them."""
    start, stop = random.integers(-length, length, 2)
    return slice(int(start), int(stop), int(random.choice([-3, -1, 1, 1, 2, 7])))


def test_any_range_of_a_raw_file(tmp_path, mounted):
    data = content("u2", (37, 41), 5)
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=3)
    root.create_array("a", shape=(37, 41), chunks=(8, 6), dtype="<u2")[...] = data
    files = mounted(store).files
    whole = data.tobytes()
    random = np.random.default_rng(5)
    with open(layout.decoded(files, store, "a", "raw"), "rb", buffering=0) as file:
        for _ in range(200):
            start, length = random.integers(0, len(whole) + 10, 2)
            file.seek(int(start))
            assert file.read(int(length)) == whole[start : start + length]
