"""Groups as files of classic netCDF: read whole by netCDF-C, scipy and GDAL, and equal to what zarr-python and xarray read."""

import json
import os
import shutil
import subprocess

import netCDF4
import numpy as np
import pytest
import scipy.io
import xarray
import zarr

import corpus
import layout
import needs
import netcdf_stores
import programs
from mounting import Mount, wait_until, zarrfs
from test_formats import same, values

CLASSIC = ["i1", "i2", "i4", "f4", "f8", "bool", "f2", "u1", "u2"]
WIDE = [*CLASSIC, "u4", "i8", "u8"]
HELD = {"b": "i1", "u1": "i2", "u2": "i4", "f2": "f4"}


def add(root, name, data, names=None, chunks="auto", **attributes):
    more = {"dimension_names": names} if root.metadata.zarr_format == 3 and names else {}
    if names and not more:
        attributes["_ARRAY_DIMENSIONS"] = names
    array = root.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks, attributes=attributes, **more)
    array[...] = data


@pytest.fixture(params=[2, 3])
def numbers(request, tmp_path):
    """Makes a store with a group of all types of classic netCDF, and one with types that it lacks."""
    path = tmp_path / "numbers.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=request.param)
    for group, types in (("classic", CLASSIC), ("wide", WIDE)):
        made = root.create_group(group, attributes={
            "title": "Gr\u00f6\u00dfe", "count": 3, "ratio": 0.5, "list": [1, 2, 3], "is": True, "big": 2**40, "object": {"a": [1]},
        })
        for dtype in types:
            add(made, f"of_{dtype}", values(dtype, (3, 5, 7), 1), ["z", "y", "x"], (2, 5, 3), units="K", valid=[0, 1.5])
        add(made, "odd", values("i2", 5, 2), ["y"])
        # The same name with another length, and no name at all.
        add(made, "longer", values("f4", 9, 3), ["y"])
        add(made, "unnamed", values("f8", (2, 2), 4))
        add(made, "scalar", np.array(7, "i4"))
    return path


def plain(data):
    """Returns values in the type that netCDF has for them."""
    return data.astype(HELD.get(data.dtype.str[1:], HELD.get(data.dtype.kind, data.dtype)))


def check(path, group, kind):
    """Compares every variable as netCDF-C reads it with the arrays of a group."""
    arrays = dict(group.arrays())
    with netCDF4.Dataset(path) as file:
        assert file.data_model == kind
        file.set_auto_maskandscale(False)
        assert set(file.variables) == set(arrays)
        for name, array in arrays.items():
            same(file[name][...], plain(array[...]), name)
    assert os.stat(path).st_size % 4 == 0


ENGINES = {"nc": ("netcdf4", "scipy"), "nc4": ("netcdf4", "h5netcdf"), "h5": ("netcdf4", "h5netcdf")}


def equal(path, expected):
    """Fails unless xarray reads a dataset from a file, and with each of its engines."""
    for engine in ENGINES[path.name.rpartition(".")[2]]:
        with xarray.open_dataset(path, engine=engine) as read:
            xarray.testing.assert_equal(read, expected)
            assert set(read.coords) == set(expected.coords), (path, engine)
            for name in expected.variables:
                own = expected[name]
                assert read[name].dtype.kind == own.dtype.kind or own.dtype.kind in "TOU", (path, engine, name)
                attributes = {key: value for key, value in own.attrs.items() if key != "dtype"}
                assert {key: read[name].attrs.get(key) for key in attributes} == attributes, (path, engine, name)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Writes stores with xarray and mounts their folder; returns the mount, the folder and names with datasets."""
    folder = tmp_path_factory.mktemp("written")
    names = netcdf_stores.write(folder)
    with Mount(folder) as mount:
        yield mount, folder, {name: xarray.open_zarr(folder / f"{name}.zarr", consolidated="_2" in name).load() for name in names}


def of_group(mount, name, end):
    """Returns the path of a file of a store that lies in a mounted folder."""
    return mount.files / f"{name}.zarr" / f"{name}.zarr{end}"


def test_each_reader_reads_the_dataset_that_xarray_wrote(written, tmp_path):
    mount, _, datasets = written
    tools = [["ncdump"], ["h5dump"], ["ncks", "-O"]]
    for name, dataset in datasets.items():
        for end in (".nc", ".nc4", ".h5", ".cf.nc4", ".cf.nc"):
            path = of_group(mount, name, end)
            equal(path, dataset)
            for tool in tools:
                needs.require(tool[0], shutil.which(tool[0]), source=programs.SOURCE)
                if tool[0] != "h5dump" or not end.endswith(".nc"):
                    copy = [tmp_path / f"copy{end}"] if tool[0] == "ncks" else []
                    subprocess.run([*tool, path, *copy], check=True, stdout=subprocess.DEVNULL)
            equal(tmp_path / f"copy{end}", dataset)
        # The same netCDF-4 has both names.
        assert of_group(mount, name, ".nc4").read_bytes() == of_group(mount, name, ".h5").read_bytes()


READ = r"""library(ncdf4); library(RNetCDF); library(hdf5r)
hex <- function(text) paste(sprintf("%02x", as.integer(charToRaw(enc2utf8(text)))), collapse = "")
show <- function(reader, path, name, read) {
    shape <- if (is.null(dim(read))) length(read) else dim(read)
    shown <- if (is.character(read)) vapply(as.vector(read), hex, "") else sprintf("%a", as.numeric(read))
    kind <- if (inherits(read, "integer64")) "integer64" else typeof(read)
    cat(reader, path, name, kind, paste(shape, collapse = ","), shown, sep = "\t"); cat("\n")
}
for (path in readLines("stdin")) {
    file <- open.nc(path); values <- read.nc(file, fitnum = TRUE); close.nc(file)
    for (name in names(values)) show("RNetCDF", path, name, values[[name]])
    file <- nc_open(path)
    variables <- Filter(function(name) file$dim[[name]]$create_dimvar, names(file$dim))
    for (name in c(names(file$var), variables)) show("ncdf4", path, name, ncvar_get(file, name, raw_datavals = TRUE, collapse_degen = FALSE))
    nc_close(file)
    if (endsWith(path, ".nc")) next
    file <- H5File$new(path, mode = "r")
    for (name in names(file)) if (inherits(file[[name]], "H5D")) show("hdf5r", path, name, file[[name]]$read())
    file$close_all()
}"""

# What R has for types of numpy; of integers of eight bytes it has none, and each reader another kind, by their values.
KINDS_IN_R = {"i1": ["integer"], "i2": ["integer"], "i4": ["integer"], "i8": ["integer", "double", "integer64"], "f4": ["double"], "f8": ["double"]}


def read_in_r(paths, folder):
    """Returns kind, shape and values of each variable of files, as three packages of R read them, by reader, path and name."""
    needs.require("Rscript", shutil.which("Rscript"), source=programs.SOURCE)
    script = folder / "read.R"
    script.write_text(READ)
    done = subprocess.run(["Rscript", "--vanilla", script], input="".join(f"{path}\n" for path in paths), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        reader, path, name, kind, shape, *values = line.split("\t")
        is_text = kind == "character"
        read = [bytes.fromhex(value).decode() if is_text else np.nan if value in ("NA", "NaN") else float.fromhex(value) for value in values]
        found[reader, path, name] = (kind, [int(length) for length in shape.split(",")], read)
    return found


def test_r_reads_the_dataset_that_xarray_wrote(written, tmp_path):
    """All variables, with types, shapes, texts and every number; in R the first dimension varies fastest."""
    mount, _, datasets = written
    ends = (".nc", ".nc4", ".h5", ".cf.nc4", "@time=2020-01-03.nc4")
    paths = [of_group(mount, name, end) for name in datasets for end in ends if "time" not in end or "era5" in name]
    found = read_in_r(paths, tmp_path)
    for path in paths:
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            for reader in ("RNetCDF", "ncdf4", "hdf5r"):
                if (reader, path.suffix) == ("hdf5r", ".nc"):
                    continue
                # Those of dimensions that have no variable are arrays of HDF5, too.
                names = {name for other, of, name in found if (other, of) == (reader, str(path))}
                missing = set(file.variables) - names
                assert not missing and names <= set(file.variables) | set(file.dimensions), (reader, path, missing)
                for name, variable in file.variables.items():
                    kind, shape, read = found[reader, str(path), name]
                    expected = variable[...]
                    if variable.dtype == str or variable.dtype.kind == "S":
                        # netCDF4 puts letters together itself where they have an encoding.
                        assert (kind, read) == ("character", [str(text) for text in expected.ravel()]), (reader, path, name)
                        continue
                    assert kind in KINDS_IN_R[variable.dtype.str[1:]], (reader, path, name, variable.dtype)
                    assert shape == (list(expected.shape[::-1]) or [1]), (reader, path, name)
                    np.testing.assert_array_equal(np.array(read), np.asarray(expected).astype("f8").ravel(), err_msg=f"{reader} {path} {name}")


SELECTIONS = {
    "cmip6": [
        ("time=2020-01", lambda data: data.sel(time="2020-01")),
        ("time=#3", lambda data: data.isel(time=3)),
        ("time=2019-03:2019-06,lat=-45", lambda data: data.sel(time=slice("2019-03", "2019-06"), lat=-45.0)),
        ("lat=-45:45", lambda data: data.sel(lat=slice(-45, 45))),
    ],
    "era5": [
        ("time=2020-01-02", lambda data: data.sel(time="2020-01-02")),
        ("time=2020-01-02T03", lambda data: data.sel(time="2020-01-02T03")),
        ("latitude=10:5", lambda data: data.sel(latitude=slice(10, 5))),
        ("latitude=5,time=#0", lambda data: data.isel(time=0).sel(latitude=5.0)),
        ("latitude=#::-2", lambda data: data.isel(latitude=slice(None, None, -2))),
    ],
}


def variable_of(dataset, kind):
    """Returns a variable of a dataset with its coordinates, their bounds and its grid mapping."""
    names = [netcdf_stores.FIELD[kind], *(["time_bnds", "lat_bnds", "lon_bnds", "crs"] if kind == "cmip6" else [])]
    return dataset[names]


# Kinds of files by the version of the store: each part is in all kinds, and each version in two.
ENDS = {"2": (".nc", ".cf.nc4"), "3": (".nc4", ".cf.nc")}


def test_selections_have_their_coordinates(written, tmp_path):
    mount, folder, datasets = written
    for name, dataset in datasets.items():
        kind, _, version = name.rpartition("_")
        field = netcdf_stores.FIELD[kind]
        for text, select in [("", lambda data: data), *SELECTIONS[kind]]:
            expected, chosen = select(dataset), f"@{text}" if text else ""
            for end in ENDS[version]:
                equal(of_group(mount, name, chosen + end), expected)
                path = mount.files / f"{name}.zarr" / field / f"{field}{chosen}{end}"
                equal(path, variable_of(expected, kind))
                for at, file in [(folder / f"{name}.zarr", of_group(mount, name, chosen + end)), (folder / f"{name}.zarr" / field, path)]:
                    copy = tmp_path / f"copy{end}"
                    copy.unlink(missing_ok=True)
                    zarrfs("cp", f"{at}{chosen}", copy)
                    assert copy.read_bytes() == file.read_bytes(), (at, chosen, end)
    # By number, too.
    [path] = [mount.files / "era5_3.zarr/t2m/t2m@1:3,...,0.nc4"]
    equal(path, datasets["era5_3"][["t2m"]].isel(time=slice(1, 3), longitude=0))


def test_an_invalid_selection_has_no_file_and_a_reason(written, tmp_path):
    mount, folder, _ = written
    for name, why in [
        ("era5_2.zarr@time=1999.nc4", "no element is labelled '1999'"),
        ("era5_2.zarr@0.nc4", "name the dimensions of a group"),
        ("era5_2.zarr@nosuch=1.cf.nc", "no dimension named 'nosuch'"),
    ]:
        assert not (mount.files / "era5_2.zarr" / name).exists()
        [line] = [line for line in (mount.path / ".zarrfs/errors").read_text().splitlines() if name in line]
        assert why in line
        selection, _, end = name.removeprefix("era5_2.zarr").rpartition(".n")
        done = zarrfs("cp", f"{folder}/era5_2.zarr{selection.removesuffix('.cf')}", tmp_path / f"x.n{end}", check=False)
        assert done.returncode == 2 and why in done.stderr


TYPES = {
    "bool": np.array([True, False, True, True]), "u1": np.array([0, 255, 1, 2], "u1"), "u4": np.array([0, 1, 2, 2**31 - 1], "u4"),
    "i8": np.array([0, -65535, 1, -(2**31)]), "f2": np.array([0, 5, 1, np.nan], "f2"), "S3": np.array([b"a", b"", b"xyz", b"ab"]),
    "U3": np.array(["a", "", "x\u00fcz", "ab"]), "s": np.array(["2020-01-01", "2021-01-01", "1960-01-01T12", "2030-01-01"], "M8[s]"),
    "h": np.array([1, 2, 3, 4], "m8[h]"), "ns": np.array(["2020-01-01", "NaT", "1960-01-01T12", "2262-01-01"], "M8[ns]"),
    "c8": np.array([1 + 2j, 3, 4, 5], "c8"), "text": np.array(["one", "", "zwei \u00fc", "x" * 100], object),
}
NARROW = [name for name in TYPES if name not in ("ns", "c8")]


@pytest.mark.parametrize("version", [2, 3])
def test_types_of_numpy_are_read_like_xarray(version, tmp_path, mounted):
    root = zarr.open_group(tmp_path / "types.zarr", mode="w", zarr_format=version)
    for group, names in (("all", list(TYPES)), ("narrow", NARROW)):
        made = root.create_group(group)
        for name in names:
            data = TYPES[name]
            more = {"dimension_names": ["x"]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}}
            array = made.create_array(name, shape=4, chunks=3, dtype="str" if name == "text" else data.dtype, **more)
            array[...] = data
        if version == 2:
            made.create_array("raw", shape=2, chunks=2, dtype="V3")
    if version == 2:
        del root["narrow/raw"]
        root["all"].create_array("months", data=np.array([600, 601]).astype("M8[M]"))
    root["all"].create_array("deep", shape=(1,) * 33, chunks=(1,) * 33, dtype="i2")
    mount = mounted(tmp_path / "types.zarr")
    for group, end in (("all", "nc4"), ("narrow", "nc"), ("narrow", "nc4")):
        path = mount.files / group / f"{group}.{end}"
        for engine in ENGINES[end]:
            options = {"auto_complex": True} if engine == "netcdf4" and end == "nc4" else {}
            with xarray.open_dataset(path, engine=engine, **options) as read:
                for name in TYPES if group == "all" else NARROW:
                    data, found = TYPES[name], read[name].values
                    expected = data.astype({"f2": "f4", "h": "m8[s]"}.get(name, data.dtype))
                    found = found.astype(data.dtype) if name in ("s", "h", "U3", "text") else found
                    np.testing.assert_array_equal(found, expected.astype(found.dtype), err_msg=f"{engine} {name}")
                    assert found.dtype.kind == expected.dtype.kind or end == "nc", (engine, name)
    left_out = os.getxattr(mount.files / "all/all.nc4", "user.zarrfs.left_out").decode()
    assert "deep: HDF5 has at most 32 dimensions" in left_out.splitlines()
    months = "months: the unit of datetime64[M], which CF does not have; the numbers are kept"
    assert (months in left_out.splitlines()) == (version == 2)
    done = zarrfs("cp", tmp_path / "types.zarr/all", tmp_path / "out.nc4")
    assert "the file leaves out deep: HDF5 has at most 32 dimensions" in done.stderr
    assert "deep: HDF5 has at most 32 dimensions (all.h5, all.nc4)" in zarrfs("info", tmp_path / "types.zarr/all").stdout


def test_numbers_beyond_int32_remove_the_netcdf3_file(tmp_path, mounted):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    add(root, "n", np.array([1, -5, 2**31 - 1]), ["x"])
    mount = mounted(tmp_path / "a.zarr", "--cow", tmp_path / "upper")
    path = mount.files / "a.nc"
    with netCDF4.Dataset(path) as file:
        assert file["n"].dtype == "i4" and file["n"][...].tolist() == [1, -5, 2**31 - 1]
    numbers = np.load(mount.files / "n/n.npy", mmap_mode="r+")
    numbers[1] = 2**40
    numbers.flush()
    del numbers
    with pytest.raises(FileNotFoundError):
        open(path)
    assert "int64 values beyond int32, as in n, need .nc4" in (mount.path / ".zarrfs/errors").read_text()
    with netCDF4.Dataset(mount.files / "a.nc4") as file:
        assert file["n"][...].tolist() == [1, 2**40, 2**31 - 1]


def test_all_types(numbers, mounted):
    root = zarr.open_group(numbers, mode="r")
    mount = mounted(numbers)
    files = mount.files
    check(files / "classic/classic.nc", root["classic"], "NETCDF3_CLASSIC")
    # CDF-1 and CDF-2 lack these numbers, and both lack groups.
    assert not (files / "wide/wide.nc").exists()
    assert not (files / "numbers.nc").exists()
    lines = (mount.path / ".zarrfs/errors").read_text()
    assert "beyond int32, as in of_i8, need .nc4" in lines and "no array of its own" in lines
    with scipy.io.netcdf_file(files / "classic/classic.nc", mmap=True) as file:
        for name, array in root["classic"].arrays():
            same(np.array(file.variables[name][...]), plain(array[...]), name)
        assert file.dimensions == {"z": 3, "y": 9, "x": 7, "y_5": 5, "dim_2": 2}


def test_attributes(numbers, mounted):
    path = mounted(numbers).files / "classic/classic.nc"
    with netCDF4.Dataset(path) as file:
        assert (file.title, file.count, file.ratio, file.list.tolist()) == ("Gr\u00f6\u00dfe", 3, 0.5, [1, 2, 3])
        assert (file.getncattr("is"), file.big, file.object) == (1, 2**40, '{"a":[1]}')
        assert (file["of_i2"].units, file["of_i2"].valid.tolist()) == ("K", [0, 1.5])


def test_flags_and_limits_have_the_type_of_their_variable(tmp_path, mounted):
    """CF requires this for flag_values, flag_masks and the valid_range of integers."""
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    attributes = {"flag_values": [1, 2, 4], "flag_masks": [1, 2, 4], "valid_range": [0, 100], "valid_min": 0, "other": [1, 2]}
    for dtype in ("i1", "i2", "i4"):
        add(root, dtype, values(dtype, (3,), 1), ["x"], **attributes, missing_value=-1)
    # A limit that is none of the type's numbers, and limits of floats, stay as they are.
    add(root, "wide", values("i1", (3,), 1), ["x"], valid_max=1000)
    add(root, "real", values("f4", (3,), 1), ["x"], valid_range=[0.1, 0.2])
    for name in ("a.nc", "a.nc4", "a.h5"):
        with netCDF4.Dataset(mounted(tmp_path / "a.zarr").files / name) as file:
            for dtype in ("i1", "i2", "i4"):
                for key, value in {**attributes, "missing_value": -1}.items():
                    found = np.asarray(file[dtype].getncattr(key))
                    assert found.tolist() == value, (name, key)
                    assert key == "other" or found.dtype == dtype, (name, key)
            assert file["wide"].valid_max == 1000 and file["real"].valid_range.tolist() == [0.1, 0.2]


def test_the_sample_equals_the_dataset_of_xarray(sample, mounted):
    path = mounted(sample).files / "climate.nc"
    check(path, zarr.open_group(sample, mode="r"), "NETCDF3_CLASSIC")
    expected = xarray.open_zarr(sample, consolidated=False)
    for engine in ("netcdf4", "scipy"):
        with xarray.open_dataset(path, engine=engine) as read:
            for name in expected.variables:
                np.testing.assert_array_equal(read[name].values, expected[name].values, err_msg=name)
                assert read[name].dims == expected[name].dims
                assert {key: read[name].attrs[key] for key in expected[name].attrs} == expected[name].attrs
            assert {k: v for k, v in read.attrs.items()} == expected.attrs


def test_xarray_reads_back_the_dataset_that_it_wrote(tmp_path, mounted):
    times = np.array(["2020-01-01", "2020-01-02", "2020-02-01"], "datetime64[ns]")
    made = xarray.Dataset(
        {"t": (("time", "x"), values("f8", (3, 4), 1)), "packed": (("time",), np.array([1.5, np.nan, 2.5]))},
        {"time": times, "x": np.arange(4, dtype="i4")}, {"title": "made"},
    )
    packing = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1}
    made["t"].encoding["_FillValue"] = 1e20
    encoding = {"packed": packing, "time": {"dtype": "f8"}}
    for version in (2, 3):
        store = tmp_path / f"made{version}.zarr"
        made.to_zarr(store, encoding=encoding, zarr_format=version, consolidated=False)
        path = mounted(store).files / f"made{version}.nc"
        with xarray.open_dataset(path) as read:
            xarray.testing.assert_equal(read, xarray.open_zarr(store, consolidated=False))


def copied_by_nco(path, variant, folder):
    """Returns a copy that ncks has made of every variable: read and written again by NCO."""
    needs.require("ncks", shutil.which("ncks"), source=" (scripts/setup tools installs it)")
    copy = folder / f"copy{variant}.nc"
    subprocess.run(["ncks", "-O", f"-{variant}", path, copy], check=True, capture_output=True)
    return copy


def test_nco(numbers, sample, mounted, tmp_path):
    root, files = zarr.open_group(numbers, mode="r"), mounted(numbers).files
    with scipy.io.netcdf_file(copied_by_nco(files / "classic/classic.nc", 3, tmp_path), mmap=False) as file:
        assert set(file.variables) == {name for name, _ in root["classic"].arrays()}
        for name, array in root["classic"].arrays():
            same(np.array(file.variables[name][...]), plain(array[...]), name)
    check(copied_by_nco(mounted(sample).files / "climate.nc", 3, tmp_path), zarr.open_group(sample, mode="r"), "NETCDF3_CLASSIC")


def copied_by_cdo(path, folder):
    """Returns a copy that CDO has made of every variable on a grid."""
    program, environment = programs.unpacked("cdo")
    copy = folder / f"copy{path.suffix}"
    command = [program, "-s", "-O", "-f", "nc4" if path.suffix == ".nc4" else "nc5", "copy", path, copy]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return copy


def on_grids(folder, version, **options):
    """Makes a store with variables of all floats and integers on a grid of longitudes and latitudes, over times."""
    times = np.array(["2020-01-01", "2020-01-02", "2020-02-01"], "datetime64[ns]")
    data = {f"of_{dtype}": (("time", "lat", "lon"), values(dtype, (3, 5, 7), 1)) for dtype in ("i2", "i4", "f4", "f8")}
    coordinates = {"time": times, "lat": np.linspace(-60, 60, 5), "lon": np.arange(7.0) * 10}
    made = xarray.Dataset(data, coordinates, {"title": "on grids"})
    made.lat.attrs["units"], made.lon.attrs["units"] = "degrees_north", "degrees_east"
    encoding = {"time": {"dtype": "f8", "units": "hours since 2020-01-01"}}
    for name in data:
        encoding[name] = {"chunks": (1, 3, 4), **options}
    made.to_zarr(folder, encoding=encoding, zarr_format=version, consolidated=False)
    return folder


def test_cdo(sample, mounted, tmp_path):
    stores = [sample, on_grids(tmp_path / "three.zarr", 3), on_grids(tmp_path / "two.zarr", 2)]
    stores.append(on_grids(tmp_path / "sharded.zarr", 3, shards=(2, 6, 8)))
    count = 0
    for store in stores:
        files, group = mounted(store).files, zarr.open_group(store, mode="r")
        for extension in ("nc", "nc4"):
            path = files / f"{layout.root_name(store)}.{extension}"
            with netCDF4.Dataset(copied_by_cdo(path, tmp_path)) as file:
                file.set_auto_maskandscale(False)
                for name, array in group.arrays():
                    if array.ndim == 3:
                        same(file[name][...], array[...], (path, name))
                        count += 1
    assert count >= 3 * 4 * 2


def test_gdal(tmp_path, mounted):
    import rasterio

    data = values("i4", (3, 6, 8), 5)
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    add(root, "a", data, ["band", "y", "x"], (1, 6, 4))
    path = mounted(tmp_path / "a.zarr").files / "a.nc"
    with rasterio.open(f"netcdf:{path}:a") as source:
        # netCDF's rows begin in the south unless something says otherwise.
        read = source.read()
    assert np.array_equal(read, data) or np.array_equal(read[:, ::-1], data)


def is_held(array):
    """Says whether classic netCDF has the values of an array."""
    data = array[...]
    fits = data.dtype.kind in "iu" and data.size > 0 and abs(data.astype(object)).max() < 2**31
    return 0 not in array.shape and (fits or data.dtype.newbyteorder("=") in map(np.dtype, CLASSIC))


def test_corpus(mounted, tmp_path):
    """Groups of other writers: those of zarrita.js and zarr-python that netCDF can hold."""
    needs.shared("corpus")
    corpus.unpack(tmp_path)
    count = 0
    for name in ("zarrita.js-fixtures/v2.zarr", "z5py/flat.zr", "ome-zarr-py-data/v2.zarr", "zarr-java-v2/v2_sample.zarr"):
        store = tmp_path / name
        if not store.is_dir():
            continue
        files = mounted(store).files
        for document in store.rglob(".zgroup"):
            path = str(document.parent.relative_to(store)).removeprefix(".")
            group = zarr.open_group(document.parent, mode="r", use_consolidated=False)
            own = path.rpartition("/")[2] or layout.root_name(store)
            file = layout.array_folder(files, path) / f"{own}.nc"
            try:
                arrays = dict(group.arrays())
            except ValueError:
                # zarr-python does not know a type of it.
                continue
            holds = all(is_held(array) for array in arrays.values())
            assert file.exists() == bool(arrays and holds), (name, path)
            if file.exists():
                count += 1
                check(file, group, "NETCDF3_CLASSIC")
    assert count >= 2


def test_changed_chunks_and_attributes_are_in_the_file(tmp_path, mounted):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    add(root, "a", values("i4", (4, 4), 5), ["y", "x"], (2, 2))
    add(root, "b", values("i2", (3,), 6))
    mount = mounted(tmp_path / "a.zarr", "--cow", tmp_path / "upper")
    path = mount.files / "a.nc"
    with netCDF4.Dataset(path) as file:
        first = file["a"][...]
    written = np.load(mount.files / "a/a.npy", mmap_mode="r+")
    written[1, 1] = 77
    written.flush()
    del written
    first[1, 1] = 77
    with netCDF4.Dataset(path) as file:
        same(file["a"][...], first, path)
        same(file["b"][...], values("i2", (3,), 6), path)
    with pytest.raises(PermissionError):
        open(path, "r+b")
    (mount.files / "attributes.json").write_text('{"title": "another"}')
    with netCDF4.Dataset(path) as file:
        assert file.title == "another"


# As ncgen of netcdf-c 4.9.0 writes it: a variable whose dimensions lie in two groups has no _ARRAY_DIMENSIONS. 4.8.1 writes
# the same, and none for any variable; the names in small letters are those of 4.9.1 and 4.9.2.
@pytest.mark.parametrize("member", ["_NCZARR_ARRAY", "_nczarr_array"])
def test_dimensions_of_nczarr_have_their_names(tmp_path, mounted, member):
    store = tmp_path / "nczarr.zarr"
    root = zarr.open_group(store, mode="w", zarr_format=2)
    group = root.create_group("g")
    content = {"lat": np.arange(3, dtype="f4"), "lon": np.arange(3, dtype="f4") + 5}
    content["w"] = np.arange(9, dtype="i4").reshape(3, 3)
    paths = {"lat": ["/lat"], "lon": ["/g/lon"], "w": ["/lat", "/g/lon"]}
    for name, data in content.items():
        group.create_array(name, data=data, compressors=None)
        document = store / "g" / name / ".zarray"
        fields = json.loads(document.read_text())
        del fields["dimension_separator"]
        fields[member] = {"dimrefs": paths[name], "storage": "chunked"}
        document.write_text(json.dumps(fields))
        facts = json.loads(zarrfs("info", "--json", store / "g" / name).stdout)
        assert facts["dimension_names"] == [path.rsplit("/", 1)[1] for path in paths[name]]
    mount = mounted(store)
    with netCDF4.Dataset(layout.decoded(mount.files, store, "g", "nc")) as file:
        assert file["w"].dimensions == ("lat", "lon")
        assert {name: len(dim) for name, dim in file.dimensions.items()} == {"lat": 3, "lon": 3}
    selected = layout.decoded(mount.files, store, "g/w", "npy").with_name("w@lat=2.npy")
    assert np.load(selected).tolist() == content["w"][2].tolist()


def along(version, name):
    """Returns the arguments that name the only dimension of an array."""
    return {"dimension_names": [name]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": [name]}}


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_with_invalid_attributes_are_left_out_of_decoded_files(version, tmp_path, mounted):
    store = tmp_path / "packed.zarr"
    root = zarr.open_group(store, mode="w", zarr_format=version)
    for name, attributes in [
        ("packed", {"scale_factor": "0.1"}),
        ("scaled", {"scale_factor": 0.5, "valid_range": [0, 100], "valid_min": 0}),
        ("masked", {"valid_max": 50}),
    ]:
        array = root.create_array(name, data=np.arange(3, dtype="i2"), chunks=2, fill_value=1, **along(version, "x"))
        array.attrs.update(attributes)
    root.create_array("text", shape=3, chunks=2, dtype="str", **along(version, "x"))[...] = ["a", "b", "c"]
    root.create_group("only").create_array("packed", data=np.arange(3), chunks=2, attributes={"scale_factor": "0.1"})
    mount = mounted(store)
    with netCDF4.Dataset(mount.files / "packed.cf.nc4") as file:
        assert set(file.variables) == {"scaled", "masked", "text"}
        assert not {"valid_min", "valid_range"} & set(file["scaled"].ncattrs()) and file["masked"].valid_max == 50
        np.testing.assert_array_equal(np.ma.getdata(file["scaled"][:])[[0, 2]], [0, 1])
    why = 'cannot decode values by CF: the attribute scale_factor is "0.1" but must be a number'
    left_out = os.getxattr(mount.files / "packed.cf.nc4", "user.zarrfs.left_out").decode().splitlines()
    assert any(line.startswith(f"packed: {why}") for line in left_out), left_out
    assert "scaled: valid_min, valid_range: valid only for stored values" in left_out
    # What leaves out no array has no file.
    for name in ("packed.cf.nc", "packed/packed.cf.nc4", "packed/packed.cf.npy", "only/only.cf.nc4"):
        assert not (mount.files / name).exists(), name
        lines = (mount.path / ".zarrfs/errors").read_text().splitlines()
        assert any(f"/{name}" in line and why in line for line in lines), (name, lines)
    assert (mount.files / "packed/packed.nc4").exists() and (mount.files / "text/text.cf.nc4").exists()
    done = zarrfs("cp", f"{store}/packed", tmp_path / "x.cf.nc4", check=False)
    assert done.returncode == 2 and why in done.stderr


@pytest.mark.parametrize("version", [2, 3])
def test_dimensions_of_one_name_need_equal_selections(version, tmp_path, mounted):
    root = zarr.open_group(tmp_path / "square.zarr", mode="w", zarr_format=version)
    add(root, "square", np.arange(25).reshape(5, 5), ["x", "x"])
    add(root, "x", np.arange(5) * 10, ["x"])
    mount = mounted(tmp_path / "square.zarr")
    for text in ("0:2,1:3", "0:2", ":,3"):
        assert not (mount.files / f"square/square@{text}.nc4").exists(), text
        lines = (mount.path / ".zarrfs/errors").read_text().splitlines()
        [line] = [line for line in lines if f"square@{text}.nc4" in line]
        assert "several dimensions are named 'x'" in line
    with netCDF4.Dataset(mount.files / "square/square@1:3,1:3.nc4") as file:
        assert file["x"][:].tolist() == [10, 20] and file["square"][:].tolist() == [[6, 7], [11, 12]]


@pytest.mark.parametrize("version", [2, 3])
def test_a_label_must_select_the_same_in_all_groups(version, tmp_path, mounted):
    root = zarr.open_group(tmp_path / "groups.zarr", mode="w", zarr_format=version)
    for name, labels, other in [("a", [0, 10, 20], [1.0, np.nan, 3]), ("b", [10, 20, 30], [1.0, np.nan, 3])]:
        made = root.create_group(name)
        add(made, "x", np.array(labels), ["x"])
        add(made, "y", np.array(other), ["y"])
        add(made, "field", np.arange(9).reshape(3, 3), ["x", "y"])
    mount = mounted(tmp_path / "groups.zarr")
    assert not (mount.files / "groups@x=10.nc4").exists()
    [line] = [line for line in (mount.path / ".zarrfs/errors").read_text().splitlines() if "groups@x=10.nc4" in line]
    assert "a/x and b/x have different labels; select by number, such as x=#0" in line
    for text, expected in [("x=#1", [3, 4, 5]), ("y=3", [2, 5, 8])]:
        with netCDF4.Dataset(mount.files / f"groups@{text}.nc4") as file:
            assert [file[name]["field"][:].tolist() for name in "ab"] == [expected, expected]


@pytest.mark.parametrize("version", [2, 3])
def test_classic_netcdf_says_that_groups_are_left_out(version, tmp_path, mounted):
    store = tmp_path / "nested.zarr"
    root = zarr.open_group(store, mode="w", zarr_format=version)
    add(root, "a", np.arange(3, dtype="i4"), ["x"])
    add(root.create_group("below"), "b", np.arange(3, dtype="i4"), ["x"])
    sentence = "below: a group; .nc4 includes groups"
    mount = mounted(store)
    assert os.getxattr(mount.files / "nested.nc", "user.zarrfs.left_out").decode() == f"{sentence}\n"
    assert f"the file leaves out {sentence}" in zarrfs("cp", store, tmp_path / "x.nc").stderr
    told = json.loads(zarrfs("info", "--json", store).stdout)
    assert {"sentence": sentence, "files": ["nested.nc"]} in told["left_out"], told


def test_a_change_of_a_child_group_changes_the_file(tmp_path):
    store = tmp_path / "made.zarr"
    root = zarr.open_group(store, mode="w", zarr_format=2)
    root.create_array("text", shape=2, chunks=2, dtype="str", attributes={"_ARRAY_DIMENSIONS": ["x"]})[...] = ["one", "two"]
    root.create_group("sub", attributes={"title": "a"})
    with Mount(store) as mount:
        path = mount.files / "made.nc4"
        before = path.stat().st_size
        with netCDF4.Dataset(path) as file:
            assert file["sub"].title == "a"
        (store / "sub/.zattrs").write_text(json.dumps({"title": "b" * 5000}))
        assert wait_until(lambda: path.stat().st_size > before + 4000)
        with netCDF4.Dataset(path) as file:
            assert file["sub"].title == "b" * 5000
