"""Groups and arrays as files of HDF5: read whole by h5py, netCDF-C, h5netcdf and pyfive, and equal to zarr-python's values."""

import json
import os
import shutil
import subprocess

import h5py
import netCDF4
import numpy as np
import pyfive
import pytest
import xarray
import zarr

import corpus
import layout
import mounting
import needs
from test_formats import arrays, each, same, stores, values  # noqa: F401
from test_netcdf import add

NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "bool", "c8", "c16"]
ATTRIBUTES = {
    "title": "Gr\u00f6\u00dfe", "plain": "K", "nothing": "", "count": 3, "ratio": 0.5, "list": [1, 2, 3], "is": True, "flags": [True, False],
    "big": 2**40, "huge": 2**64 - 1, "words": ["a", "\u00e4\u00f6", ""], "object": {"a": [1]}, "mixed": [1, "a"], "long": "x" * 100_000,
    "many": list(range(9000)), "none": None, "empty": [],
}


@pytest.fixture(scope="module", params=[2, 3])
def store(request, tmp_path_factory):
    """Makes a store with groups in groups and arrays of all types."""
    path = tmp_path_factory.mktemp("hdf5") / "made.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=request.param, attributes=ATTRIBUTES)
    for dtype in NUMBERS:
        add(root, dtype, values(dtype, (3, 5, 7), 1), ["z", "y", "x"], (2, 5, 3), units="K", valid=[0, 1.5])
    add(root, "x", np.arange(7, dtype="f8"), ["x"], units="m")
    add(root, "odd", values("i2", 4, 2), ["y"])
    add(root, "unnamed", values("f8", (2, 2), 4))
    add(root, "scalar", np.array(7, "i4"))
    add(root, "z", values("i2", (3, 5), 5), ["z", "y"])
    root.create_array("nothing", shape=(0, 3), chunks=(1, 3), dtype="f4")
    root.create_array("missing", shape=(4, 3), chunks=(2, 3), dtype="i2", fill_value=-5)
    add(root, "bytes", np.array([b"one", b"", b"three"], "S5"), ["y3"])
    add(root, "text", np.array([["one", "\u00e4\u20ac\U0001f600"], ["", "12345"]], "U5"))
    below = root.create_group("below/deeper", attributes={"deep": 1})
    add(below, "x", np.arange(4, dtype="i4"), ["x"])
    add(below, "data", values("f4", (4, 4), 3), ["x", "y"])
    root.create_group("empty", attributes={"a": 1})
    root.create_array("strings", shape=3, chunks=3, dtype="str")
    return path


def arrays_of(root):
    return {name: node for name, node in root.members(max_depth=None) if isinstance(node, zarr.Array) and name != "strings"}


def held(data):
    """Returns values in the type that a file has for them."""
    return data.astype({"b": "i1"}.get(data.dtype.kind, "f4" if data.dtype == np.float16 else data.dtype))


def test_h5py(store, mounted):
    root = zarr.open_group(store, mode="r")
    path = mounted(store).files / "made.h5"
    with h5py.File(path) as file:
        found = []
        file.visititems(lambda name, node: found.append(name))
        assert set(found) >= {name.replace("z", "_nc4_non_coord_z") if name == "z" else name for name, _ in root.members(max_depth=None)}
        for name, array in arrays_of(root).items():
            data, name = array[...], "_nc4_non_coord_z" if name == "z" else name
            if data.dtype.kind == "U":
                assert file[name].asstr()[...].tolist() == data.tolist()
                continue
            if data.dtype.kind == "S":
                assert file[name][...].tobytes() == data.tobytes()
                continue
            assert file[name].dtype.newbyteorder("=") == held(data).dtype, name
            same(file[name][...], held(data), name)
        assert file["strings"].asstr()[...].tolist() == ["", "", ""]
        assert file["missing"].fillvalue == -5
        attributes = dict(file.attrs)
        assert "zarrfs_left_out" not in attributes
        assert set(attributes) == set(ATTRIBUTES)
        texts = {"object": '{"a":[1]}', "mixed": '[1,"a"]', "none": "null", "empty": "[]"}
        for name, value in ATTRIBUTES.items():
            read = attributes[name]
            if name == "many":
                assert read in (str(value).replace(" ", ""), str(value).replace(" ", "").encode())
                continue
            # Text of netCDF is bytes to h5py.
            read = read.decode() if isinstance(read, bytes) else read
            read = "" if isinstance(read, h5py.Empty) else read
            read = read.tolist() if isinstance(read, np.generic | np.ndarray) else read
            assert read == texts.get(name, value), name
        assert file["below/deeper"].attrs["deep"] == 1 and file["empty"].attrs["a"] == 1
        assert file["i2"].dims[2][0] == file["x"] and file["x"].is_scale
        assert [dimension[0].name for dimension in file["i2"].dims] == ["/z", "/y", "/x"]
        assert dict(file["i2"].attrs)["units"] == b"K"


def test_pyfive(store, mounted):
    """A reader without the HDF5 library."""
    root = zarr.open_group(store, mode="r")
    with pyfive.File(mounted(store).files / "made.h5") as file:
        for path, array in arrays_of(root).items():
            data, read = array[...], file["_nc4_non_coord_z" if path == "z" else path][...]
            if data.dtype.kind == "U":
                texts = [text.decode() if isinstance(text, bytes) else text for text in np.ravel(read)]
                assert texts == data.ravel().tolist()
            elif data.dtype.kind in "biuf":
                same(read, held(data), path)
        assert file["i2"].attrs["units"] in ("K", b"K") and file["below/deeper"].attrs["deep"] == 1
        assert (file.attrs["count"], file.attrs["list"].tolist()) == (3, [1, 2, 3])


def test_netcdf_in_pyfive(store, mounted):
    root = zarr.open_group(store, mode="r")
    with pyfive.File(mounted(store).files / "made.nc4") as file:
        for path, array in arrays_of(root).items():
            if array.dtype.kind in "biuf":
                data = array[...]
                plain = data.astype({"b": "i1"}.get(data.dtype.kind, "f4" if data.dtype == np.float16 else data.dtype))
                # As netCDF-C calls a variable that has the name of a dimension and is not its coordinate variable.
                other = f"_nc4_non_coord_{path}"
                same(file[other if other in file else path][...], plain, path)
        assert file["i2"].attrs["units"] in ("K", b"K") and file["below/deeper"].attrs["deep"] == 1


def test_netcdf(store, mounted):
    root = zarr.open_group(store, mode="r")
    path = mounted(store).files / "made.nc4"
    arrays = arrays_of(root)
    with netCDF4.Dataset(path, auto_complex=True) as file:
        file.set_auto_mask(False)
        assert file.data_model == "NETCDF4"
        assert set(file.variables) == {name for name in arrays if "/" not in name} | {"strings"}
        assert set(file.groups) == {"below", "empty"}
        for name, array in arrays.items():
            data, variable = array[...], file[name]
            if data.dtype.kind == "S":
                assert netCDF4.chartostring(file[name][...], "bytes").tolist() == data.tolist()
                continue
            if data.dtype.kind == "U":
                assert variable.dtype is str and variable[...].tolist() == data.tolist()
                continue
            plain = data.astype({"b": "i1"}.get(data.dtype.kind, "f4" if data.dtype == np.float16 else data.dtype))
            same(variable[...], plain, name)
        assert file["i2"].dimensions == ("z", "y", "x") and file["odd"].dimensions == ("y_4",)
        assert file["z"].dimensions == ("z", "y")
        assert len(file.dimensions["y_4"]) == 4
        assert (file.title, file.count, file.ratio, file.list.tolist()) == ("Gr\u00f6\u00dfe", 3, 0.5, [1, 2, 3])
        assert (file.getncattr("is"), file.big, file.object, file.words) == (1, 2**40, '{"a":[1]}', ["a", "\u00e4\u00f6", ""])
        assert (file.nothing, file.long, file.huge) == ("", "x" * 100_000, 2**64 - 1)
        assert (file["i2"].units, file["i2"].valid.tolist()) == ("K", [0, 1.5])
        assert file["below/deeper/data"].dimensions == ("x", "y")


def test_the_hdf5_file_of_one_array(store, mounted):
    root = zarr.open_group(store, mode="r")
    files = mounted(store).files
    for name, array in arrays_of(root).items():
        own = name.rpartition("/")[2]
        for reader in (h5py, pyfive):
            with reader.File(files / name / f"{own}.h5") as file:
                if array.dtype.kind in "biuf":
                    same(file["_nc4_non_coord_z" if own == "z" else own][...], held(array[...]), name)
    with h5py.File(files / "strings/strings.h5") as file:
        assert file["strings"].asstr()[...].tolist() == ["", "", ""]


def test_the_hdf5_file_of_one_array_of_every_store(arrays):  # noqa: F811
    for path, data in each(arrays, "h5", lambda data: True):
        own = os.path.basename(path).removesuffix(".h5")
        # pyfive does not know types that are objects of their own, as those of complex numbers are.
        for reader in (h5py, pyfive) if data.dtype.kind != "c" else (h5py,):
            with reader.File(path) as file:
                same(file[own][...], held(data), (path, reader))


def test_xarray_reads_back_the_dataset_that_it_wrote(tmp_path, mounted):
    times = np.array(["2020-01-01", "2020-01-02", "2020-02-01"], "datetime64[ns]")
    made = xarray.Dataset(
        {"t": (("time", "x"), values("f8", (3, 4), 1)), "packed": (("time",), np.array([1.5, np.nan, 2.5])),
         "half": (("x",), np.arange(4, dtype="f2")), "flag": (("y",), np.array([True, False]))},
        {"time": times, "x": np.arange(4, dtype="i4")}, {"title": "made"},
    )
    packing = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1}
    encoding = {"packed": packing, "time": {"dtype": "f8"}, "t": {"_FillValue": 1e20}, "half": {"_FillValue": None}}
    for version in (2, 3):
        store = tmp_path / f"made{version}.zarr"
        made.to_zarr(store, encoding=encoding, zarr_format=version, consolidated=False)
        files = mounted(store).files
        expected = xarray.open_zarr(store, consolidated=False)
        for engine in ("netcdf4", "h5netcdf"):
            with xarray.open_dataset(files / f"made{version}.nc4", engine=engine) as read:
                xarray.testing.assert_equal(read, expected)
                assert read.attrs == expected.attrs


def test_xarray_reads_the_sample_as_netcdf4(sample, mounted):
    files = mounted(sample).files
    expected = xarray.open_zarr(sample, consolidated=False)
    for engine in ("netcdf4", "h5netcdf"):
        with xarray.open_dataset(files / "climate.nc4", engine=engine) as read:
            for name in expected.variables:
                np.testing.assert_array_equal(read[name].values, expected[name].values, err_msg=name)
                assert read[name].dims == expected[name].dims


def test_nan_and_infinity_in_attributes_are_floats(tmp_path, mounted):
    nan, inf = float("nan"), float("inf")
    attributes = {"nan": nan, "inf": inf, "less": -inf, "some": [1, nan, -inf], "word": "NaN", "mixed": [nan, "x"], "whole": [1, 2]}
    for version in (2, 3):
        root = zarr.open_group(tmp_path / f"{version}.zarr", mode="w", zarr_format=version, attributes=attributes)
        root.create_array("a", data=values("f4", (3,)), attributes={**attributes, "missing_value": nan})
        files = mounted(tmp_path / f"{version}.zarr").files
        for path in (f"{version}.h5", f"{version}.nc4", "a/a.h5"):
            with h5py.File(files / path) as file:
                for node in (file, file["a"]) if path != "a/a.h5" else (file["a"],):
                    read = dict(node.attrs)
                    assert (read["nan"].dtype, read["inf"], read["less"]) == ("f8", inf, -inf) and np.isnan(read["nan"])
                    np.testing.assert_array_equal(read["some"], [1, nan, -inf])
                    assert read["word"] in ("NaN", b"NaN") and read["whole"].tolist() == [1, 2]
                    assert list(read["mixed"]) == ["NaN", "x"]
                assert file["a"].attrs["missing_value"].dtype == "f4" and np.isnan(file["a"].attrs["missing_value"])


def test_attributes_with_unsupported_names_are_renamed(tmp_path, mounted):
    attributes = {"a/b": 1, "a_b": 2, "@type": "Map", "": 3, "NAME": "own", "x" * 300: 4, "_FillValue": "none"}
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", attributes=attributes)
    root.create_array("x", data=values("i2", (3,)), attributes=attributes, dimension_names=["of/x"])
    files = mounted(tmp_path / "a.zarr").files
    for name in ("a.nc", "a.nc4"):
        with netCDF4.Dataset(files / name) as file:
            for node in (file, file["x"]):
                read = {key: node.getncattr(key) for key in node.ncattrs()}
                assert (read["a_b"], read["a_b_"], read["_@type"], read["_"]) == (2, 1, "Map", 3)
                assert read["NAME_" if name == "a.nc4" else "NAME"] == "own"
                assert read["x" * 243] == 4 and len(read) == 7
                assert read["_FillValue_" if node is not file else "_FillValue"] in ("none", b"none")
            assert file["x"].dimensions == ("of_x",)
            same(file["x"][...].data, values("i2", (3,)), name)
    info = json.loads(mounting.zarrfs("info", "--json", tmp_path / "a.zarr" / "x").stdout)
    assert info["renamed_attributes"]["a/b"] == "a_b_" and info["renamed_attributes"]["_FillValue"] == "_FillValue_"
    assert "a/b is a_b_" in mounting.zarrfs("info", tmp_path / "a.zarr").stdout


def test_xarray_reads_groups_as_a_datatree(store, mounted):
    with xarray.open_datatree(mounted(store).files / "made.nc4", engine="h5netcdf", group="below") as read:
        assert set(read["deeper"].variables) == {"x", "data"}


def program(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_tools_of_the_libraries(store, mounted, tmp_path):
    """h5repack and nccopy read every element and attribute, with other versions of the libraries than the Python packages."""
    for tool in ("h5repack", "h5diff", "nccopy"):
        needs.require(tool, shutil.which(tool) is not None)
    files = mounted(store).files
    for name in ("made.h5", "made.nc4"):
        program("h5repack", str(files / name), str(tmp_path / name))
        program("h5diff", str(files / name), str(tmp_path / name))
    program("nccopy", str(files / "made.nc4"), str(tmp_path / "copied.nc4"))
    root = zarr.open_group(store, mode="r")
    with netCDF4.Dataset(tmp_path / "copied.nc4") as copied:
        for name in NUMBERS[:11]:
            data = root[name][...]
            same(copied[name][...].data, data.astype("f4") if name == "f2" else data, name)


def test_corpus(mounted, tmp_path):
    """Groups of other writers: all of their numbers."""
    needs.shared("corpus")
    corpus.unpack(tmp_path)
    count = 0
    for name in ("zarrita.js-fixtures/v2.zarr", "z5py/flat.zr", "ome-zarr-py-data/v2.zarr", "zarr-java-v2/v2_sample.zarr"):
        store = tmp_path / name
        path = mounted(store).files / f"{layout.root_name(store)}.h5"
        with h5py.File(path) as file:
            read = []
            file.visititems(lambda name, node, read=read: read.append((name, node)))
            for key, node in read:
                is_dimension = b"This is a netCDF dimension" in node.attrs.get("NAME", b"")
                if isinstance(node, h5py.Dataset) and node.dtype.kind in "biufc" and not is_dimension:
                    same(node[...], zarr.open_array(store / key, mode="r")[...], (name, key))
                    count += 1
    assert count >= 20


def test_files_are_read_only(tmp_path, mounted):
    store = tmp_path / "read.zarr"
    zarr.open_group(store, mode="w").create_array("a", data=values("i2", (4, 6)), chunks=(2, 3))
    files = mounted(store, "--cow", tmp_path / "upper").files
    for path in (files / "a/a.h5", files / "read.h5", files / "read.nc4"):
        with pytest.raises(PermissionError):
            os.open(path, os.O_RDWR)
