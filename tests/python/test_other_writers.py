"""Metadata that no specification allows and zarr-python reads all the same: zarrfs reads the same values.

The documents are made by hand: each is what a writer is known to make, or may make, as docs/conformance.md lists them.
"""

import json
import subprocess
import warnings

import numpy as np
import pytest
import zarr

from mounting import program

V2 = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<i2",
    "compressor": None,
    "filters": None,
    "fill_value": 0,
    "order": "C",
}
V3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}
TYPES = {"int16": "<i2", "uint8": "|u1", "uint64": "<u8", "bool": "|b1", "float32": "<f4", "float64": "<f8"}


def grid(chunk):
    return {"name": "regular", "configuration": {"chunk_shape": chunk}}


def sharded(inner, index):
    configuration = {"chunk_shape": [1], "codecs": [inner], "index_codecs": [index, {"name": "crc32c"}]}
    return [{"name": "sharding_indexed", "configuration": configuration}]


def write(folder, base, changes):
    """Writes an array of one stored chunk and one that is missing."""
    document = {**base, **changes}
    (folder / (".zarray" if base is V2 else "zarr.json")).write_text(json.dumps(document))
    chunk = folder / ("0" if base is V2 else "c/0")
    chunk.parent.mkdir(exist_ok=True)
    if "sharding_indexed" not in json.dumps(document):
        size = np.dtype(TYPES.get(document.get("data_type"), document.get("dtype"))).itemsize
        chunk.write_bytes(bytes(range(2 * size)))


def decoded(folder):
    select = subprocess.run(
        [program(), "cat", "--format", "npy", "--select", ":", folder], capture_output=True, check=True
    )
    with open(folder.with_suffix(".npy"), "wb") as file:
        file.write(select.stdout)
    return np.load(file.name)


def expect_same(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = zarr.open_array(folder, mode="r")[...]
    found = decoded(folder)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("base", [V2, V3], ids=["v2", "v3"])
@pytest.mark.parametrize(
    "data_type, value",
    [
        ("int16", "0"),
        ("int16", " -3 "),
        ("int16", "1_000"),
        ("int16", "+5"),
        ("uint8", "255"),
        ("uint64", "18446744073709551615"),
        ("uint64", 1e19),
        ("bool", "0"),
        ("bool", "false"),
        ("bool", ""),
        ("bool", 2),
    ],
)
def test_fill_values_as_text_are_read(tmp_path, base, data_type, value):
    name, spelled = ("dtype", TYPES[data_type]) if base is V2 else ("data_type", data_type)
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder, base, {name: spelled, "fill_value": value})
    expect_same(folder)


@pytest.mark.parametrize("value", ["0", "7.5", "1e3", "inf", "-inf", "nan", "+Infinity", " 2 ", "1_000.5"])
def test_floats_as_text_are_read(tmp_path, value):
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder, V2, {"dtype": "<f8", "fill_value": value})
    expect_same(folder)


def test_a_text_too_long_for_its_type_is_read_like_zarr_python(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder, V2, {"dtype": "<U2", "fill_value": "abc"})
    (folder / "0").unlink()
    expect_same(folder)


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "bytes"}],
        [{"name": "bytes", "configuration": {}}],
        sharded({"name": "bytes"}, {"name": "bytes"}),
    ],
    ids=["bare", "empty", "sharded"],
)
def test_bytes_without_a_byte_order_are_little_endian(tmp_path, codecs):
    folder = tmp_path / "a"
    if "sharding_indexed" in json.dumps(codecs):
        zarr.create_array(folder, data=np.arange(4, dtype="<i2"), chunks=(1,), shards=(2,), compressors=None)
    else:
        folder.mkdir()
    write(folder, V3, {"codecs": codecs})
    expect_same(folder)


@pytest.mark.parametrize(
    "base, changes",
    [
        (V2, {"shape": 3, "chunks": 2}),
        (V2, {"chunks": 2}),
        (V2, {"shape": [0], "chunks": [0]}),
        (V2, {"zarr_format": 2.0}),
        (V3, {"shape": 4, "chunk_grid": grid(2)}),
        (V3, {"shape": [0], "chunk_grid": grid([0])}),
        (V3, {"dimension_names": "x"}),
        (V3, {"storage_transformers": {}}),
        (V3, {"zarr_format": 3.0}),
    ],
    ids=lambda value: "" if "fill_value" in value else json.dumps(value),
)
def test_members_of_other_writers_are_read(tmp_path, base, changes):
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder, base, changes)
    expect_same(folder)


NAMES = ["i2", "=i2", "int16", "float64", "bool", "float", "int", "uint8", "?", "h", "d", ">h", "double", "long", "datetime64[s]"]


@pytest.mark.parametrize("name", NAMES)
def test_types_by_other_names_of_numpy_are_read(tmp_path, name):
    """zarr-python 2 passes these names to numpy; zarr-python 3 refuses them."""
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder, V2, {"dtype": name})
    found = decoded(folder)
    stored = np.frombuffer((folder / "0").read_bytes(), name)
    assert found.dtype == np.dtype(name).newbyteorder("<")
    np.testing.assert_array_equal(found, np.concatenate([stored, np.zeros(2, name)]))


def test_an_empty_list_of_extensions_is_read(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder, V3, {"extensions": []})
    assert decoded(folder).tobytes() == bytes([0, 1, 2, 3, 0, 0, 0, 0])
