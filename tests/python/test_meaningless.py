"""Attributes of CF that say nothing: there is no file of the values, and a reason; and what xarray makes of each."""

import base64
import struct

import numpy as np
import pytest
import zarr

import mounting

ENCODED = base64.b64encode(struct.pack("<d", 3.0)).decode()
DAYS = "days since 2000-01-01"
FILES = "/.zarrfs/files"

# xarray refuses these, too.
REFUSED = [
    *[{name: value} for name in ("scale_factor", "add_offset") for value in ["0.01", "abc", "", "NaN", [0.1, 0.2], [], {"a": 1}]],
    {"scale_factor": 0.1, "add_offset": "1"}, {"scale_factor": "0.1", "units": DAYS}, {"units": "days", "scale_factor": "2"},
    *[{name: {"a": 1}} for name in ("_FillValue", "missing_value")],
    *[{"units": units} for units in [
        "days since", "since", "foo since 2000-01-01", "days since bad", "days since 2000-13-01", "days since 2000-02-30",
        "months since 2000-01-01", "days since 2000-01-01 25:00", "days since 0000-01-01", "days since 00-01-01",
        "number of days since start", "count since 1900",
    ]],
    *[{"units": DAYS, "calendar": calendar} for calendar in ["bad", "", 5, "none", ["standard"]]],
    *[{"units": "days", "dtype": dtype} for dtype in ["timedelta64", "timedelta64[x]", "timedelta64[Y]", "timedelta64[ns"]],
]
# xarray takes these for something else: text is no number that stands for none, and what it multiplies by true is true.
REFUSED_HERE = [
    *[{name: value} for name in ("scale_factor", "add_offset") for value in [True, ["0.1"]]],
    *[{name: value} for name in ("_FillValue", "missing_value") for value in ["abc", "3", "", ["3"], True, "AAAA"]],
    {"missing_value": ENCODED}, {"_FillValue": "3", "scale_factor": 0.5},
    {"units": "days since 01/02/2000"}, {"units": "days since Jan 1 2000"},
]
# Of whole numbers alone: some readers take "True" for unsigned, and xarray does not.
REFUSED_WHOLE = [
    *[{"_Unsigned": value} for value in ["True", True, "yes", 1]], {"_FillValue": ENCODED},
    {"_Unsigned": "true", "_FillValue": 300000},
]
# The same values.
ALIKE = [
    {}, {"scale_factor": 0}, {"scale_factor": 0.0}, {"scale_factor": float("nan")}, {"scale_factor": None}, {"add_offset": None},
    {"scale_factor": None, "missing_value": 3}, {"scale_factor": [0.1], "add_offset": [1.0]}, {"add_offset": float("inf")},
    {"missing_value": [3, 4]}, {"missing_value": [[3]]}, {"missing_value": []}, {"missing_value": None}, {"missing_value": 3.5},
    {"missing_value": -999999}, {"missing_value": float("nan")}, {"missing_value": 1e20}, {"_Unsigned": "true"},
    {"_Unsigned": "false"}, {"_Unsigned": None}, {"units": "DAYS SINCE 2000-01-01"}, {"units": ["days since 2000-01-01"]},
    {"units": 5}, {"units": "days since 2000-01"}, {"units": "days  since  2000-01-01"}, {"units": DAYS, "calendar": None},
    {"units": "days since 20000101 12:00"},
    {"dtype": "timedelta64[x]"}, {"units": "days", "dtype": "timedelta64[D]"}, {"units": "days", "dtype": "junk"},
    {"flag_values": "0b, 1b", "flag_meanings": "a b"}, {"valid_range": "0,1"},
]
# The numbers that stand for none, which xarray refuses in v3 but for one way of writing them.
FILLS = [{"_FillValue": value} for value in [3, 3.0, [3], [3, 4], [], None, float("nan"), -999999]]
FILLS += [{"_FillValue": 3, "scale_factor": 0.5}, {"_FillValue": 3, "_Unsigned": "true"}, {"_FillValue": 3.0, "_Unsigned": "true"}]


def cases():
    """Returns for each name of an array its type, its attributes and whether it has values."""
    found = {}
    for dtype in ("i2", "f4"):
        whole = REFUSED_WHOLE if dtype == "i2" else []
        for has_values, group in [(False, REFUSED + REFUSED_HERE + whole), (True, ALIKE + FILLS)]:
            for attributes in group:
                found[f"{dtype}_{len(found)}"] = (dtype, attributes, has_values)
    return found


@pytest.fixture(scope="module", params=[2, 3])
def store(request, tmp_path_factory):
    """Returns a store with a group for each case, whose array `a` has it, and the version."""
    path = tmp_path_factory.mktemp("meaningless") / "s.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=request.param)
    for name, (dtype, attributes, _) in cases().items():
        names, own = ({"dimension_names": ["n"]}, {}) if request.param == 3 else ({}, {"_ARRAY_DIMENSIONS": ["n"]})
        array = root.create_array(
            f"{name}/a", shape=4, chunks=4, dtype=dtype, attributes=attributes | own,
            fill_value=0 if request.param == 3 else None, **names)
        array[...] = np.arange(4, dtype=dtype)
    return path, request.param


def opened(path, name):
    """Returns the values that xarray has of a case; nothing if it refuses them."""
    import xarray

    try:
        return xarray.open_zarr(path, group=name, consolidated=False, chunks=None).variables["a"].values
    except (ValueError, TypeError, OverflowError, struct.error):
        return None


@pytest.mark.filterwarnings("ignore")
def test_invalid_attributes_leave_no_decoded_file_and_a_reason(store):
    path, version = store
    with mounting.Mount(path) as mount:
        for name, (dtype, attributes, has_values) in cases().items():
            what, file = (version, dtype, attributes), mount.files / name / "a/a.cf.npy"
            expected = opened(path, name)
            if not has_values:
                assert not file.exists(), what
                assert expected is None or attributes not in REFUSED, what
                continue
            found = np.load(file)
            if attributes in FILLS and version == 3 and expected is None:
                expected = np.where(np.arange(4) == 3, np.nan, np.arange(4)) if 3 in np.ravel(attributes["_FillValue"]) else np.arange(4)
                expected = expected * attributes.get("scale_factor", 1)
            else:
                # Of a list of one factor xarray has Python's numbers.
                expected = expected.astype("f8") if expected.dtype == object else expected
                assert found.dtype == expected.dtype, what
            np.testing.assert_array_equal(found, expected, err_msg=str(what))
        errors = (mount.path / ".zarrfs/errors").read_text().splitlines()
        told = {line.split("\t")[2]: line.split("\t")[4] for line in errors}
    for name, (_, attributes, has_values) in cases().items():
        if not has_values:
            why = told[f"{FILES}/{name}/a/a.cf.npy"]
            assert any(f"the attribute {name} is" in why for name in attributes), why
    assert len(told) == sum(not has_values for _, _, has_values in cases().values())


def test_info_and_cp_name_the_invalid_attribute(store, tmp_path):
    path, _ = store
    found = {name for name, (_, attributes, _) in cases().items() if attributes == {"scale_factor": "0.01"}}
    assert len(found) == 2
    for name in found:
        why = 'the attribute scale_factor is "0.01" but must be a number'
        for arguments, where in [
            (["info", path / name / "a"], "stdout"), (["info", path / name / "a/a.cf.npy"], "stdout"),
            (["info", path / name / "a/a@0.cf.tif"], "stdout"), (["cp", path / name / "a", tmp_path / "a.cf.npy"], "stderr"),
            (["cat", path / name / "a", "--select", "0", "--format", "cf.raw"], "stderr"),
        ]:
            assert why in getattr(mounting.zarrfs(*arguments, check=False), where), arguments
        assert not (tmp_path / "a.cf.npy").exists()
        # What is stored is there all the same.
        mounting.zarrfs("cp", path / name / "a", tmp_path / "a.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.arange(4))


def test_coordinates_with_invalid_attributes_have_no_labels(tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    for name, attributes in [("x", {"scale_factor": "0.5"}), ("t", {"units": "days since then"}), ("y", {"scale_factor": 0.5})]:
        root.create_array(name, data=np.arange(4), dimension_names=[name], attributes=attributes)
    root.create_array("v", data=np.arange(64).reshape(4, 4, 4), dimension_names=["t", "y", "x"])
    with mounting.Mount(tmp_path / "s.zarr") as mount:
        for text, why in [("x=1", "scale_factor"), ("t=0", "units")]:
            assert not (mount.files / f"v/v@{text}.npy").exists()
            assert why in (mount.path / ".zarrfs/errors").read_text()
            done = mounting.zarrfs("cp", f"{tmp_path}/s.zarr/v@{text}", tmp_path / "v.npy", check=False)
            assert done.returncode == 2 and why in done.stderr
        np.testing.assert_array_equal(np.load(mount.files / "v/v@y=0.5,x=#2,t=#1.npy"), 22)
