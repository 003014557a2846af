"""Consolidated metadata on a mount with --cow and --write-through: they agree with the nodes, also after a discard."""

import json
import os
import shutil

import numpy as np
import pytest
import xarray
import zarr

from mounting import zarrfs

pytestmark = pytest.mark.filterwarnings("ignore")
FORMS = pytest.mark.parametrize("form", [2, 3])


def make(folder, form):
    """Makes a store with a group `g`, both consolidated."""
    values = np.arange(60.0).reshape(6, 10)
    data = xarray.Dataset({"t": (("x", "y"), values, {"units": "K"})}, coords={"x": np.arange(6)})
    data.to_zarr(folder, zarr_format=form, consolidated=True)
    data.to_zarr(folder, group="g", zarr_format=form, consolidated=True, mode="a")
    zarr.consolidate_metadata(folder, path="g", zarr_format=form)
    zarr.consolidate_metadata(folder, zarr_format=form)
    return folder


@pytest.fixture
def mount(tmp_path, mounted):
    """Mounts such a store; the files view is at `files` below."""
    return lambda form, *options: mounted(
        make(tmp_path / "data.zarr", form), *(options or ["--cow", tmp_path / "upper"])
    )


def holder(form):
    return ".zmetadata" if form == 2 else "zarr.json"


def described(place, consolidated, group=None):
    """Returns shape and attributes of each node, as the copies have them or the documents."""
    root = zarr.open_group(place, mode="r", path=group or "", use_consolidated=consolidated)
    nodes = {"": dict(root.attrs)}
    for name, node in root.members(max_depth=None):
        nodes[name] = (getattr(node, "shape", None), dict(node.attrs))
    return nodes


def agrees(place):
    for group in (None, "g"):
        if group is None or (place / group).exists():
            assert described(place, True, group) == described(place, False, group)
    with xarray.open_zarr(place, consolidated=True) as one, xarray.open_zarr(place, consolidated=False) as other:
        xarray.testing.assert_identical(one.load(), other.load())


def edit(mounted, node, **attributes):
    path = mounted.path / ".zarrfs/files" / node / "attributes.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | attributes))


# Invariant of `copies_agree_when_attributes_are_edited_and_discarded`.
@FORMS
def test_copies_follow_edited_and_discarded_attributes(form, mount, tmp_path):
    mounted, store = mount(form), tmp_path / "data.zarr"
    before = (store / holder(form)).read_bytes()
    edit(mounted, "g/t", units="C")
    agrees(mounted.path)
    assert xarray.open_zarr(mounted.path, group="g").t.attrs["units"] == "C"
    stat = os.stat(mounted.path / holder(form))
    assert stat.st_size == len((mounted.path / holder(form)).read_bytes())
    assert holder(form) not in os.listdir(tmp_path / "upper/keys")
    edit(mounted, "t", units="F")
    zarrfs("discard", mounted.path, "g/t")
    agrees(mounted.path)
    zarrfs("commit", mounted.path)
    agrees(mounted.path)
    agrees(store)
    assert xarray.open_zarr(store, group="g").t.attrs["units"] == "K"
    assert xarray.open_zarr(store).t.attrs["units"] == "F"
    assert (store / holder(form)).read_bytes() != before


@FORMS
def test_copies_follow_created_resized_and_removed_arrays(form, mount, tmp_path):
    mounted, store = mount(form), tmp_path / "data.zarr"
    before = (store / holder(form)).read_bytes()
    root = zarr.open_group(mounted.path, mode="r+", use_consolidated=False)
    root.create_array("g/new", shape=(4,), chunks=(2,), dtype="i4")[...] = 7
    root["g/t"].resize((3, 10))
    del root["g/x"]
    agrees(mounted.path)
    assert set(described(mounted.path, True, "g")) == {"", "new", "t"}
    zarrfs("discard", mounted.path, "g")
    assert (mounted.path / holder(form)).read_bytes() == before
    agrees(mounted.path)
    edit(mounted, "t", units="F")
    zarrfs("commit", mounted.path)
    agrees(store)
    assert described(store, True, "g")["t"][0] == (6, 10)
    # And without a discard.
    root = zarr.open_group(mounted.path, mode="r+", use_consolidated=False)
    root.create_array("g/new", shape=(4,), chunks=(2,), dtype="i4")[...] = 7
    del root["g/x"]
    os.rename(mounted.path / "g", mounted.path / "h")
    agrees(mounted.path)
    zarrfs("commit", mounted.path)
    agrees(store)
    assert set(described(store, True, "h")) == {"", "new", "t"}
    shutil.rmtree(mounted.path / "h")
    agrees(mounted.path)
    zarrfs("commit", mounted.path)
    agrees(store)
    assert set(described(store, True)) == {"", "t", "x"}


@FORMS
def test_copies_follow_changes_after_a_library_consolidated(form, mount, tmp_path):
    mounted, store = mount(form), tmp_path / "data.zarr"
    plain = make(tmp_path / "plain.zarr", form)
    for place in (mounted.path, plain):
        made = xarray.Dataset({"new": ("z", np.arange(4))})
        made.to_zarr(place, mode="a", zarr_format=form, consolidated=True)
    assert (mounted.path / holder(form)).read_bytes() == (plain / holder(form)).read_bytes()
    edit(mounted, "new", unit="m")
    agrees(mounted.path)
    zarrfs("discard", mounted.path, "new")
    agrees(mounted.path)
    zarrfs("commit", mounted.path)
    agrees(store)
    assert "new" not in described(store, True)


@FORMS
def test_copies_in_the_store_follow_write_through(form, mount, tmp_path):
    mounted, store = mount(form, "--write-through"), tmp_path / "data.zarr"
    edit(mounted, "g/t", units="C")
    agrees(mounted.path)
    agrees(store)
    edit(mounted, "g", title="a group")
    root = zarr.open_group(mounted.path, mode="r+", use_consolidated=False)
    root.create_array("g/new", shape=(4,), chunks=(2,), dtype="i4")[...] = 7
    del root["g/x"]
    agrees(mounted.path)
    agrees(store)
    assert described(store, True, "g")["t"][1]["units"] == "C"


@FORMS
def test_an_edit_of_the_consolidated_document_is_kept(form, mount, tmp_path):
    mounted, store = mount(form), tmp_path / "data.zarr"
    edit(mounted, "t", units="C")
    document = mounted.path / holder(form)
    shown = document.read_bytes()
    theirs = shown.replace(b'"C"', b'"their own"')
    document.write_bytes(theirs)
    assert document.read_bytes() == theirs
    with open(document, "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    assert document.read_bytes() == theirs + b"\n"
    zarrfs("commit", mounted.path)
    assert document.read_bytes() == theirs + b"\n"
    assert (store / holder(form)).read_bytes() == theirs + b"\n"
