"""Zarr libraries that are pointed at the files view read it as a store of v3."""

import glob
import json
import os

import numpy as np
import pytest
import tensorstore
import xarray
import zarr

DOCUMENTS = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}


def n5_store(folder):
    """Makes an N5 container of one array."""
    array = {"dimensions": [4], "blockSize": [2], "dataType": "int16", "compression": {"type": "raw"}, "unit": "K"}
    for path, document in (("", {"n5": "2.0.0"}), ("a", array)):
        (folder / path).mkdir(exist_ok=True)
        (folder / path / "attributes.json").write_text(json.dumps(document))
    return folder


def broken_store(folder):
    """Makes groups of v3 and v2, each with an array that does not read."""
    zarr.open_group(folder, mode="w").create_array("new", data=np.arange(4), chunks=(2,))
    zarr.open_group(folder / "v2", mode="w", zarr_format=2).create_array("old", data=np.arange(4), chunks=(2,))
    for name, old, new in (("new/zarr.json", '"shape": [', '"shape": [-'), ("v2/old/.zarray", '"<i8"', '"<i7"')):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
    return folder


@pytest.fixture(params=["v3", "v2", "n5", "broken"])
def store(request, tmp_path, sample, sample_v2):
    """Returns the path of a store."""
    folder = tmp_path / "made"
    folder.mkdir()
    make = {"v3": lambda: sample, "v2": lambda: sample_v2, "n5": lambda: n5_store(folder)}
    return make.get(request.param, lambda: broken_store(folder))()


@pytest.fixture(params=["at the mount point", "in the control directory"])
def files(request, store, mounted):
    """Returns the files view of a mounted store."""
    at_dir = request.param == "at the mount point"
    return mounted(store, "--view", "files").path if at_dir else mounted(store).files


def nodes(files):
    """Returns the directories of all nodes."""
    return [parent for parent, _, _ in os.walk(files)]


def in_v3(files):
    """Returns the directories of the nodes that have a document of v3."""
    return [node for node in nodes(files) if os.path.exists(os.path.join(node, "zarr.json"))]


def arrays(files):
    """Returns those of arrays."""
    return [node for node in in_v3(files) if os.path.exists(os.path.join(node, "chunks"))]


def values(node):
    """Returns the elements of an array by its .npy file."""
    [name] = glob.glob(os.path.join(glob.escape(node), "*.npy"))
    return np.load(name)


# Invariant (plain): A recursive copy of the files view does not look like a Zarr store without chunks.
def test_no_document_of_a_store_is_listed(files):
    listed = {name for _, folders, names in os.walk(files) for name in folders + names}
    assert not listed & DOCUMENTS
    for node in nodes(files):
        for name in DOCUMENTS - {"zarr.json"}:
            with pytest.raises(FileNotFoundError):
                os.stat(os.path.join(node, name))


def test_libraries_read_the_right_values(files):
    found = arrays(files)
    assert found or os.path.exists(os.path.join(files, "new", "ERROR.txt"))
    for node in found:
        expected = values(node)
        np.testing.assert_array_equal(zarr.open(node, mode="r")[...], expected)
        place = {"driver": "file", "path": f"{node}/"}
        opened = tensorstore.open({"driver": "zarr3", "kvstore": place}, open=True, read=True).result()
        np.testing.assert_array_equal(opened.read().result(), expected)
    group = zarr.open_group(files, mode="r")
    for name, array in group.arrays():
        np.testing.assert_array_equal(array[...], values(os.path.join(files, name)))
    members = {os.path.join(files, name) for name, _ in group.members(max_depth=None)}
    assert members == set(in_v3(files)) - {str(files)}


def test_xarray_reads_the_same_as_from_the_store(sample, mounted):
    files = mounted(sample).files
    xarray.testing.assert_identical(xarray.open_zarr(files).load(), xarray.open_zarr(sample).load())


def test_libraries_find_no_node_where_metadata_are_broken(tmp_path, mounted):
    folder = tmp_path / "made"
    folder.mkdir()
    files = mounted(broken_store(folder)).files
    assert os.path.exists(files / "new" / "ERROR.txt")
    for node in ("new", "v2/old"):
        for open_node in (zarr.open, zarr.open_array, zarr.open_group):
            with pytest.raises(FileNotFoundError):
                open_node(files / node, mode="r")


def test_no_library_writes_to_the_store(sample, mounted, tmp_path):
    files = mounted(sample, "--cow", tmp_path / "upper").files
    before = {node: sorted(os.listdir(node)) for node in nodes(files)}
    for mode in ("a", "w-"):
        for zarr_format in (2, 3):
            with pytest.raises(OSError):
                zarr.open_group(files, mode=mode, zarr_format=zarr_format).create_group("new")
            # In mode "a" the array of v3 opens, and its chunks are read-only.
            with pytest.raises((OSError, zarr.errors.ContainsArrayError)):
                array = zarr.open_array(files / "tas", mode=mode, shape=(4,), dtype="i4", zarr_format=zarr_format)
                array[0] = 0
    assert {node: sorted(os.listdir(node)) for node in nodes(files)} == before
