"""Documents of other programs that are rewritten: what nobody changed is what their writers wrote."""

import json
import math

import numpy as np
import xarray
import zarr

ODD = {
    "valid_range": [-math.inf, math.inf],
    "missing": math.nan,
    "digits": 123456789012345678901234567890,
    "scale": 1.0,
    "large": 1e22,
    "text": "NaN",
}


def written_by_xarray(folder, zarr_format):
    """Writes a dataset with odd attributes and consolidated metadata."""
    values = xarray.DataArray(np.arange(6.0).reshape(2, 3), dims=["y", "x"], attrs=ODD)
    dataset = xarray.Dataset({"t": values}, attrs=ODD)
    dataset.to_zarr(folder, zarr_format=zarr_format, consolidated=True)
    return folder


def same(attributes):
    """Whether attributes are the odd ones, NaN included, numbers of the same types."""
    return repr({name: attributes[name] for name in ODD}) == repr(ODD)


def as_written(path):
    """Returns a document with every number and word as text."""
    return json.loads(path.read_text(), parse_float=str, parse_int=str, parse_constant=str)


def copies_in(document):
    """Returns the copies that a document holds."""
    return document.get("consolidated_metadata", document)["metadata"]


def test_an_edit_leaves_the_other_copies_of_xarray_as_they_are(tmp_path, mounted):
    for zarr_format, name in [(2, ".zmetadata"), (3, "zarr.json")]:
        store = written_by_xarray(tmp_path / f"v{zarr_format}.zarr", zarr_format)
        before = as_written(store / name)
        mount = mounted(store, "--write-through", "--cow", tmp_path / f"upper{zarr_format}")
        attributes = mount.files / "t/attributes.json"
        attributes.write_text(attributes.read_text().replace('"scale": 1.0', '"scale": 2.0'))
        after = as_written(store / name)
        copy = copies_in(after)["t/.zattrs"] if zarr_format == 2 else copies_in(after)["t"]["attributes"]
        assert copy["scale"] == "2.0"
        copy["scale"] = "1.0"
        assert repr(after) == repr(before), name
        opened = xarray.open_zarr(store, consolidated=True)
        assert same(opened.attrs)
        assert same({**opened["t"].attrs, "scale": 1.0}) and opened["t"].attrs["scale"] == 2.0
        assert (opened["t"].values == np.arange(6.0).reshape(2, 3)).all()
        assert same(dict(zarr.open_group(store, mode="r").attrs))
