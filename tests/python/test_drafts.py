"""The drafts of v3: `metadata.json` of the files view is final v3 that zarr-python opens, and nodes are the manifest's."""

import json
import shutil

import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs

import corpus
import layout

DRAFTS = {"v3-2019", "v3-2020", "v3-2022"}


def draft_stores():
    """Returns one parameter for each store of a draft, with its line of stores.jsonl and its entries."""
    if not corpus.FOLDER.is_dir():
        # `corpus_folder` skips the test.
        return [None]
    entries = corpus.by_store(corpus.entries())
    lines = (corpus.FOLDER / "stores.jsonl").read_bytes().splitlines()
    stores = {}
    for line in map(json.loads, lines):
        if line["dialect"] in DRAFTS:
            name = f"{line['source']}/{line['store']}"
            stores[name] = (name, line, entries.get(name, []))
    return [pytest.param(store, id=name) for name, store in stores.items()]


def readable(path):
    """Says whether a file reads; what must be understood and is not has no metadata to show."""
    try:
        return bool(path.read_bytes())
    except OSError as error:
        assert error.errno in corpus.REFUSALS, error
        return False


@pytest.fixture(params=draft_stores())
def draft(request, corpus_folder, mounted):
    """Returns the files view of a mounted store of a draft, the store's line and its entries."""
    name, line, entries = request.param
    store = corpus_folder / name
    return mounted(store).files, store, line, entries


def test_nodes_equal_those_of_the_manifest(draft):
    files, _, line, entries = draft
    refused = {entry["array"] for entry in entries if entry["expect"] == "error"}
    if refused == {entry["array"] for entry in entries} and entries:
        assert (files / "ERROR.txt").read_text().startswith("The root cannot be read: zarr.json: ")
        return
    for path, kind in line["nodes"].items():
        folder = files / path.strip("/")
        assert folder.is_dir(), path
        if path in refused and not readable(folder / "metadata.json"):
            continue
        if f"{path}/metadata.json" in line["nodes"]:
            # A child wins over a file of its group.
            assert (folder / "metadata.json").is_dir()
            continue
        document = json.loads((folder / "metadata.json").read_text())
        expected = "array" if kind == "array" else "group"
        assert document["node_type"] == expected, path
        attributes = json.loads((folder / "attributes.json").read_text())
        assert attributes == line["attributes"].get(path, {}), path


def test_children_are_listed_once(draft):
    files, _, line, entries = draft
    if any("required" in entry["store"] for entry in entries):
        return
    paths = [path for path in line["nodes"] if path != "/"]
    for parent, kind in line["nodes"].items():
        if kind == "array":
            continue
        prefix = parent.rstrip("/") + "/"
        below = {path.removeprefix(prefix) for path in paths if path.startswith(prefix)}
        children = {path for path in below if "/" not in path}
        names = [path.name for path in (files / parent.strip("/")).iterdir()]
        own = {"metadata.json", "attributes.json"} - children
        nodes = sorted(name for name in names if name not in own)
        assert nodes == sorted(children), parent


def test_zarr_python_opens_the_metadata(draft, tmp_path):
    files, store, _, entries = draft
    for number, entry in enumerate(entries):
        folder = layout.array_folder(files, entry["array"])
        if entry["expect"] == "error":
            continue
        copy = tmp_path / str(number)
        copy.mkdir()
        shutil.copyfile(folder / "metadata.json", copy / "zarr.json")
        array = zarr.open_array(copy, mode="r")
        assert list(array.shape) == entry["shape"], entry["id"]
        dtype = entry["dtype"]
        if isinstance(dtype, str) and "encoding" not in entry:
            native = np.dtype(dtype).newbyteorder("=")
            found = array.dtype.newbyteorder("=")
            # The manifest has fallbacks where the program may know the type, and the other way round.
            same = native.itemsize if "ext-dtype" in entry["tags"] else native
            assert same in (found, found.itemsize), entry["id"]
        # Chunks that are not there are the fill value, to zarr-python as to the mount.
        if array.size:
            filled = np.asarray(array[(slice(0, 1),) * array.ndim])
            assert filled.shape == tuple(1 for _ in array.shape), entry["id"]
