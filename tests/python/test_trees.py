"""Files of netCDF of nested groups, as xarray's DataTree has them, and of times in any calendar."""

import subprocess
import warnings

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
import xarray
import zarr

from mounting import Mount, zarrfs

# Calendars and years; of most of them numpy has no times.
TIMES = [("noleap", 1), ("noleap", 2000), ("360_day", 3000), ("360_day", 2000), ("julian", 1), ("standard", 3000),
         ("standard", 2000), ("proleptic_gregorian", 1), ("all_leap", 2001)]


def counted(calendar, year):
    """Returns a dataset of times with bounds."""
    times = np.array([cftime.datetime(year + more, month, 2, 6, calendar=calendar) for more in (0, 1) for month in (1, 5)])
    return xarray.Dataset(
        {"v": (("time", "x"), np.arange(8.0).reshape(4, 2), {"units": "K"})},
        {"time": ("time", times, {"bounds": "time_bnds"}), "time_bnds": (("time", "n"), np.stack([times, times], 1)), "x": [10, 20]},
    )


def missing():
    """Returns times and durations some of which are none, as whole numbers, and packed ones."""
    made = xarray.Dataset({
        "when": ("s", np.array(["2000-01-01", "NaT", "2020-01-01T00:00:01"], "M8[s]")),
        "masked": ("s", np.array(["2000-01-01", "NaT", "2020-01-01"], "M8[s]")),
        "packed": ("s", np.array(["2000-01-01", "2000-01-02", "2020-01-01"], "M8[s]")),
        "lead": ("s", np.array([1, "NaT", 5], "m8[s]")),
        "steps": ("s", np.array([0, 6, 12], "m8[h]").astype("m8[ns]")),
        "number": ("s", np.array([0.5, np.nan, 1])),
    })
    made.when.encoding.update(units="seconds since 2000-01-01")
    made.masked.encoding.update(units="days since 2000-01-01", dtype="i4", _FillValue=-1)
    made.packed.encoding.update(units="days since 2000-01-01", dtype="f8", scale_factor=0.5)
    made.number.encoding.update(dtype="i2", scale_factor=0.5, _FillValue=-1)
    return made


CODERS = [{}, {"decode_times": xarray.coders.CFDatetimeCoder(use_cftime=True), "drop_variables": ["when", "masked"]},
          {"decode_times": xarray.coders.CFDatetimeCoder(time_unit="us")}, {"decode_timedelta": True}]


def equal(path, expected, engine, **options):
    with xarray.open_dataset(path, engine=engine, **options) as read:
        xarray.testing.assert_equal(read, expected)
        assert set(read.coords) == set(expected.coords), (path, engine)


@pytest.mark.parametrize("version", [2, 3])
def test_times_equal_those_that_xarray_decodes(version, tmp_path):
    store = tmp_path / "times.zarr"
    datasets = {f"{calendar}_{year}": counted(calendar, year) for calendar, year in TIMES} | {"missing": missing()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, dataset in datasets.items():
            dataset.to_zarr(store, group=name, zarr_format=version, consolidated=False, mode="a")
            if name != "missing":
                # Bounds may leave units to what they bound.
                bounds = zarr.open_group(store, mode="r+")[f"{name}/time_bnds"].attrs
                bounds.put({key: value for key, value in bounds.asdict().items() if key not in ("units", "calendar")})
        with Mount(store) as mount:
            for name in datasets:
                for options in CODERS if name == "missing" else CODERS[:2]:
                    expected = xarray.open_zarr(store, group=name, consolidated=False, **options).load()
                    for end, engine in (("cf.nc4", "netcdf4"), ("cf.nc4", "h5netcdf"), ("cf.nc", "netcdf4"), ("cf.nc", "scipy")):
                        equal(mount.files / name / f"{name}.{end}", expected, engine, **options)
                    if name != "missing":
                        equal(mount.files / name / "v/v.cf.nc4", expected, "netcdf4", **options)
            for calendar, year in TIMES:
                name = f"{calendar}_{year}"
                path = mount.files / name / f"{name}.cf.nc"
                with netCDF4.Dataset(path) as file:
                    time = file["time"]
                    assert list(netCDF4.num2date(time[:], time.units, time.calendar)) == list(datasets[name].time.values)
                    assert "units" not in file["time_bnds"].ncattrs()
                # A label is a time of any year.
                label = f"time={year:04}-05"
                expected = xarray.open_zarr(store, group=name, consolidated=False).isel(time=slice(1, 2)).load()
                equal(mount.files / name / f"{name}@{label}.cf.nc4", expected, "h5netcdf")
            with netCDF4.Dataset(mount.files / "missing/missing.cf.nc4") as file:
                # Whole numbers keep their digits.
                assert file["masked"].dtype == np.dtype("i4") and file["masked"][:].mask.tolist() == [False, True, False]
                assert file["packed"].dtype == np.dtype("f8") and not hasattr(file["packed"], "scale_factor")
                file.set_auto_mask(False)
                assert np.isnan(file["number"][1])


def tree():
    """Returns groups whose coordinates are in the groups above, and a sibling without any."""
    times = np.array(["2020-01-01", "2020-01-15", "2020-02-01", "2021-01-01"], "M8[ns]")
    top = xarray.Dataset(
        {"area": (("y", "x"), np.ones((3, 2))), "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"})},
        {
            "time": ("time", times, {"bounds": "time_bnds"}), "time_bnds": (("time", "n"), np.stack([times, times], 1)),
            "y": ("y", [10.0, 20, 30], {"units": "degrees_north"}), "x": ("x", [1.0, 2], {"units": "degrees_east"}),
        },
    )
    child = xarray.Dataset({
        "v": (("time", "y", "x"), np.arange(24.0).reshape(4, 3, 2), {"grid_mapping": "crs"}),
        "w": (("z", "time"), np.arange(20).reshape(5, 4)),
    }, {"z": np.arange(5) * 100})
    deep = xarray.Dataset({"u": (("z", "time", "name"), np.arange(40).reshape(5, 4, 2))}, {"name": ["a", "b"]})
    other = xarray.Dataset({"q": (("time", "level"), np.arange(8).reshape(4, 2))}, {"level": [1, 2]})
    return {"/": top, "/child": child, "/child/deep": deep, "/other": other}


@pytest.mark.parametrize("version", [2, 3])
def test_coordinates_of_parent_groups_are_used(version, tmp_path):
    store = tmp_path / "tree.zarr"
    xarray.DataTree.from_dict(tree()).to_zarr(store, zarr_format=version, consolidated=False)
    made = xarray.open_datatree(store, engine="zarr", consolidated=False)
    more = made.to_dataset().reset_coords()[["crs", "time_bnds"]].drop_vars(["time"])
    child, deep = made["child"].to_dataset(), made["child/deep"].to_dataset()
    bounds = more[["time_bnds"]]
    with Mount(store) as mount:
        files, name = mount.files, "tree.zarr"
        for end, engine in (("nc4", "h5netcdf"), ("nc4", "netcdf4"), ("cf.nc4", "netcdf4"), ("nc", "scipy"), ("cf.nc", "netcdf4")):
            for path, expected in [
                ("child/v/v", child[["v"]].merge(more)),
                ("child/v/v@time=2020-01,x=2", child[["v"]].merge(more).sel(time="2020-01", x=2.0)),
                ("child/v/v@time=#1", child[["v"]].merge(more).isel(time=1)),
                ("child/w/w", child[["w"]].merge(bounds)),
                ("child/deep/u/u@z=100:300,time=2021", deep[["u"]].merge(bounds).sel(z=slice(100, 300), time="2021")),
                ("child/child", child.merge(more)),
                ("child/child@time=2020-01,y=20", child.merge(more).sel(time="2020-01", y=20.0)),
                ("other/other@time=2020", made["other"].to_dataset().drop_vars(["x", "y"]).merge(bounds).sel(time="2020")),
            ]:
                equal(files / f"{path}.{end}", expected, engine)
        for path, expected in [
            ("child/v/v@time=2020-02-01.npy", child.v[2]), ("child/v/v@y=20:30,x=#0.cf.npy", child.v[:, 1:, 0]),
            ("child/deep/u/u@name=b,z=400.npy", deep.u[4, :, 1]), ("other/q/q@time=2021.npy", made["other"].q[3]),
        ]:
            np.testing.assert_array_equal(np.load(files / path), expected, err_msg=path)
        assert (files / "child/w/w@time=2021-01-01.csv").read_text().split()[-5:] == ["3", "7", "11", "15", "19"]
        # The whole tree, and a part of it whose labels are in the top group alone.
        for chosen, select in (("", lambda data: data), ("@time=2020-01,z=100:300", lambda data: data.sel(
                {key: value for key, value in {"time": "2020-01", "z": slice(100, 300)}.items() if key in data.dims}))):
            for engine in ("netcdf4", "h5netcdf"):
                with xarray.open_datatree(files / f"tree{chosen}.nc4", engine=engine) as read:
                    for node in made.subtree:
                        own = select(node.to_dataset(inherit=True))
                        xarray.testing.assert_equal(read[node.path].to_dataset(inherit=True).drop_vars("crs", errors="ignore"), own.drop_vars("crs", errors="ignore"))
        # Dimensions of one name and length are one, as xarray writes them: in the highest group that has them.
        xarray.DataTree.from_dict(tree()).to_netcdf(tmp_path / "own.nc4")
        found = {}
        for path in (tmp_path / "own.nc4", files / "tree.nc4"):
            with netCDF4.Dataset(path) as file:
                for place in ("/", "/child", "/child/deep", "/other"):
                    group = file[place] if place != "/" else file
                    assert set(group.dimensions) == found.setdefault(place, set(group.dimensions)), (path, place)
                for name in ("child/v", "child/deep/u", "other/q", "area"):
                    groups = [dimension.group().path for dimension in file[name].get_dims()]
                    assert groups == found.setdefault(name, groups), (path, name)
        subprocess.run(["h5dump", files / "tree.nc4"], check=True, stdout=subprocess.DEVNULL)
        with h5py.File(files / "tree.nc4") as file:
            assert [scale[0].name for scale in (dimension.values() for dimension in file["child/deep/u"].dims)] == [
                "/child/z", "/time", "/child/deep/name"]
            used = [file[reference].name for reference, _ in file["time"].attrs["REFERENCE_LIST"]]
            assert used == ["/time_bnds", "/child/v", "/child/w", "/child/deep/u", "/other/q"]
        with Mount(store / "child") as below:
            assert not (below.files / "child@time=2020.nc4").exists()
            lines = (below.path / ".zarrfs/errors").read_text()
            assert "select by number, since no array 'time' with 4 labels was found" in lines
    for folder in (store, (tmp_path / "plain").symlink_to(store) or tmp_path / "plain"):
        text = zarrfs("cat", folder / "child/w", "--select", "time=2021-01-01").stdout
        assert text.split() == ["3", "7", "11", "15", "19"]
        zarrfs("cp", folder / "child/v@time=2020-01", tmp_path / "x.nc4")
        equal(tmp_path / "x.nc4", child[["v"]].merge(more).sel(time="2020-01"), "netcdf4")


@pytest.mark.parametrize("version", [2, 3])
def test_labels_are_found_in_the_group_that_has_them(version, tmp_path):
    store = tmp_path / "groups.zarr"
    with_labels = xarray.Dataset({"field": ("x", [1, 2, 3])}, {"x": [10, 20, 30]})
    xarray.Dataset({"field": ("x", [4, 5, 6])}).to_zarr(store, group="a", zarr_format=version, consolidated=False)
    with_labels.to_zarr(store, group="b", zarr_format=version, consolidated=False, mode="a")
    with Mount(store) as mount:
        for text, expected in (("x=20", ([5], [2])), ("x=20:30", ([5, 6], [2, 3])), ("x=#0", ([4], [1]))):
            with netCDF4.Dataset(mount.files / f"groups@{text}.nc4") as file:
                assert tuple(np.ravel(file[name]["field"][:]).tolist() for name in "ab") == expected
        # It is a label, and no number of an element.
        assert not (mount.files / "groups@x=2.nc4").exists()
        assert "no element is labelled '2'; the labels are from 10 to 30" in (mount.path / ".zarrfs/errors").read_text()
        # The group alone has no labels.
        with netCDF4.Dataset(mount.files / "a/a@x=2.nc4") as file:
            assert file["field"][...].tolist() == 6
        assert not (mount.files / "a/a@x=ten.nc4").exists()
        why = "'ten' is neither a number nor a slice for dimension 0 of 3 elements; select by number"
        assert why in (mount.path / ".zarrfs/errors").read_text()


@pytest.mark.parametrize("version", [2, 3])
def test_coordinates_may_be_named_by_paths(version, tmp_path):
    """As in products of Sentinel-5P, whose detail groups name the longitudes of the product."""
    store = tmp_path / "paths.zarr"
    lat, lon = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3) * 10
    product = xarray.Dataset({"scanline": [5, 6]}, {"lat": (("scanline", "pixel"), lat), "lon": (("scanline", "pixel"), lon)})
    product.to_zarr(store, group="product", zarr_format=version, consolidated=False)
    for name, named in (("absolute", "/product/lat /product/lon"), ("relative", "../../lat ../lon"), ("missing", "/nosuch/lat ../../../../x")):
        details = xarray.Dataset({name: (("scanline", "pixel"), np.ones((2, 3)), {"coordinates": named})})
        details.to_zarr(store, group=f"product/support/{name}", zarr_format=version, consolidated=False, mode="a")
    with Mount(store) as mount:
        for name, found in (("absolute", ["lat", "lon"]), ("relative", ["lat"]), ("missing", [])):
            for end in ("nc4", "nc"):
                path = mount.files / f"product/support/{name}/{name}/{name}.{end}"
                with xarray.open_dataset(path, engine="netcdf4") as read:
                    assert set(read.variables) == {"scanline", name, *found}, (path, read)
                    if name == "absolute":
                        xarray.testing.assert_equal(read.drop_vars(name), product)
                        assert set(read.coords) == {"scanline", "lat", "lon"}
