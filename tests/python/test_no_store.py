"""Zarr libraries that are pointed at the files view find no store there, and read no fill values."""

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


# Invariant (writing): No file of the files view has a name by which a Zarr library finds a node.
def test_no_name_is_that_of_a_document(files):
    listed = {name for _, folders, names in os.walk(files) for name in folders + names}
    assert not listed & DOCUMENTS
    for node in nodes(files):
        for name in DOCUMENTS:
            with pytest.raises(FileNotFoundError):
                os.stat(os.path.join(node, name))


@pytest.mark.parametrize("zarr_format", [None, 3, 2])
def test_zarr_python_finds_nothing(files, zarr_format):
    ways = [zarr.open, zarr.open_array, zarr.open_group]
    ways += [zarr.open_consolidated] if zarr_format != 3 else []
    for node in nodes(files):
        for place in (node, f"file://{node}"):
            for open_node in ways:
                with pytest.raises(FileNotFoundError):
                    open_node(place, mode="r", zarr_format=zarr_format)


def test_xarray_finds_nothing(files):
    for node in nodes(files):
        for options in ({}, {"consolidated": False}, {"zarr_format": 2}, {"zarr_format": 3}):
            with pytest.raises(FileNotFoundError):
                xarray.open_zarr(node, **options)
        with pytest.raises(FileNotFoundError):
            xarray.open_dataset(node, engine="zarr")


@pytest.mark.parametrize("driver", ["zarr", "zarr3", "n5", "auto"])
def test_tensorstore_finds_nothing(files, driver):
    for node in nodes(files):
        place = {"driver": "file", "path": f"{node}/"}
        spec = place if driver == "auto" else {"driver": driver, "kvstore": place}
        # The attributes of a node that does not read are EOPNOTSUPP.
        with pytest.raises((ValueError, NotImplementedError), match="NOT_FOUND|missing|not supported|not detect"):
            tensorstore.open(spec, open=True, read=True).result()


def test_no_library_makes_a_store(sample, mounted, tmp_path):
    files = mounted(sample, "--cow", tmp_path / "upper").files
    before = {node: sorted(os.listdir(node)) for node in nodes(files)}
    for mode in ("a", "w-"):
        for zarr_format in (2, 3):
            with pytest.raises(OSError):
                zarr.open_group(files, mode=mode, zarr_format=zarr_format).create_group("new")
            with pytest.raises(OSError):
                zarr.open_array(files / "tas", mode=mode, shape=(4,), dtype="i4", zarr_format=zarr_format)
    assert {node: sorted(os.listdir(node)) for node in nodes(files)} == before
