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
import programs
from mounting import zarrfs
from test_formats import same, values

CLASSIC = ["i1", "i2", "i4", "f4", "f8", "bool", "f2"]
WIDE = [*CLASSIC, "u1", "u2", "u4", "i8", "u8"]


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
    return data.astype({"b": "i1"}.get(data.dtype.kind, "f4" if data.dtype == np.float16 else data.dtype))


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


def test_all_types(numbers, mounted):
    root = zarr.open_group(numbers, mode="r")
    files = mounted(numbers).files
    check(files / "classic/classic.nc", root["classic"], "NETCDF3_CLASSIC")
    # CDF-1 and CDF-2 lack these types, and both lack groups.
    assert not (files / "wide/wide.nc").exists()
    assert not (files / "numbers.nc").exists()
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
    """As CF demands it of flag_values, flag_masks and valid_range of integers."""
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


def test_the_sample_is_what_xarray_reads(sample, mounted):
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


def test_what_xarray_writes_is_what_it_reads_again(tmp_path, mounted):
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
            holds = all(a.dtype.newbyteorder("=") in map(np.dtype, CLASSIC) and 0 not in a.shape for a in arrays.values())
            assert file.exists() == bool(arrays and holds), (name, path)
            if file.exists():
                count += 1
                check(file, group, "NETCDF3_CLASSIC")
    assert count >= 2


def test_a_change_of_a_chunk_shows(tmp_path, mounted):
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
def test_c03_dimensions_of_nczarr(tmp_path, mounted, member):
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
