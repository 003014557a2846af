"""Selected elements by name, as numpy and xarray select them, and values as xarray decodes them."""

import os

import numpy as np
import pytest
import zarr

import mounting

SELECTIONS = [
    "", ":", "...", "0", "-1", "0,:,10:20", "0,:,10:20:3", "::2", "::-1", "...,0", "1,...,::-2", "1:1", "3:100,-3:,5",
    "0,0,0", "[1, 2:4]", ":,::-3,::7", "-2:,1::2,30:2:-4",
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Returns the folder of two groups, one in each version, that xarray has written and attributes describe."""
    import xarray

    folder = tmp_path_factory.mktemp("slices")
    random = np.random.default_rng(1)
    for version in (2, 3):
        data = xarray.Dataset(
            {
                "cube": (("time", "lat", "lon"), random.integers(-999, 999, (5, 6, 37), "i2")),
                "scaled": (("time", "lat"), random.integers(0, 99, (5, 6)) * 0.25),
                "flags": (("time",), np.array([True, False, True, True, False])),
                "lasts": (("time",), np.array([1, 2, "NaT", 4, 5], "m8[s]")),
            },
            {
                "time": np.array(["2020-01-01", "2020-01-02", "2020-01-03T06", "2020-02-01", "2021-01-01"], "M8[ns]"),
                "lat": np.linspace(50, -50, 6).astype("f4"),
                "lon": np.arange(37) * 10.0,
            },
        )
        encoding = {"scaled": {"dtype": "i2", "scale_factor": 0.25, "add_offset": 3.0, "_FillValue": -7}}
        data.to_zarr(folder / f"{version}.zarr", zarr_format=version, encoding=encoding, consolidated=False)
        root = zarr.open_group(folder / f"{version}.zarr", mode="a")
        for number, (dtype, attributes) in enumerate(meanings()):
            values = numbers(dtype, random)
            array = root.create_array(
                f"m{number}", shape=values.shape, dtype=dtype, chunks=(40,), attributes=dict(attributes),
                fill_value=0 if version == 3 else None, **({"dimension_names": ["n"]} if version == 3 else {}),
            )
            array[...] = values
            if version == 2:
                array.attrs["_ARRAY_DIMENSIONS"] = ["n"]
    return folder


def numbers(dtype, random):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        values = (random.standard_normal(100) * 90).round(1).astype(dtype)
        values[[3, 50]] = np.nan
    else:
        low = max(np.iinfo(dtype).min, -120)
        values = random.integers(low, 120, 100).astype(dtype)
    values[[0, 7, 99]] = 99
    values[[1, 60]] = 5
    return values


def meanings():
    """Yields data types with attributes of every rule."""
    every = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    for dtype in every:
        yield dtype, {}
        yield dtype, {"missing_value": 99}
        yield dtype, {"missing_value": [99, 5]}
        yield dtype, {"scale_factor": 0.1}
        yield dtype, {"scale_factor": 0.1, "add_offset": -3.25, "missing_value": 99}
        yield dtype, {"add_offset": 7}
        yield dtype, {"units": "days since 2000-01-01"}
        yield dtype, {"units": "hours since 1990-05-01 06:30:00", "calendar": "gregorian", "missing_value": 99}
    for dtype in every[:8]:
        yield dtype, {"scale_factor": 3}
        yield dtype, {"_Unsigned": "true" if dtype[0] == "i" else "false"}
        yield dtype, {"units": "days", "missing_value": 99}
    yield "i2", {"_Unsigned": "true", "scale_factor": 0.5, "add_offset": 1.0}
    yield "f8", {"units": "seconds since 1850-01-01T00:00:00Z", "calendar": "proleptic_gregorian"}
    yield "i4", {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian", "add_offset": 730000}
    yield "i8", {"units": "minutes since 1970-1-1", "scale_factor": 2.0}
    yield "i2", {"units": "days accumulated"}
    yield "i4", {"units": "hours", "dtype": "timedelta64[s]"}
    yield "f4", {"units": "K"}


@pytest.fixture(scope="module", params=[2, 3])
def mounted(request, stores):
    store = stores / f"{request.param}.zarr"
    with mounting.Mount(store) as mount:
        yield store, mount.files


def test_selections_are_those_of_numpy(mounted):
    store, files = mounted
    cube = zarr.open_group(store, mode="r")["cube"][...]
    for text in SELECTIONS:
        expected = eval(f"cube[{text.strip('[]') or '...'}]", {"cube": cube})
        for name, order in (("npy", "C"), ("f.npy", "F")):
            path = files / "cube" / f"cube@{text}.{name}"
            found = np.load(path)
            np.testing.assert_array_equal(found, expected, err_msg=text)
            assert path.stat().st_size == len(path.read_bytes())
        raw = np.fromfile(files / "cube" / f"cube@{text}.raw", "<i2")
        np.testing.assert_array_equal(raw, np.asarray(expected).ravel(), err_msg=text)
    assert sorted(os.listdir(files / "cube")) == ["attributes.json", "cube.npy", "zarr.json"]
    for text in ("5", "0,0,0,0", "x", "::0", "cube=1", "lat=1000"):
        with pytest.raises(FileNotFoundError):
            os.stat(files / "cube" / f"cube@{text}.npy")


def test_labels_are_those_of_xarray(mounted):
    import xarray

    store, files = mounted
    data = xarray.open_zarr(store, consolidated=False)
    for text, expected in [
        ("time=2020-01-03T06:00:00", data.cube.sel(time="2020-01-03T06:00:00")),
        ("time=2020-01", None),
        ("time=2020-01:2020-01", data.cube.sel(time=slice("2020-01", "2020-01"))),
        ("lat=10", data.cube.sel(lat=10)),
        ("lat=30:-10,lon=100:200", data.cube.sel(lat=slice(30, -10), lon=slice(100, 200))),
        ("lon=100:200:3,time=2020", None),
        ("lon=100:200:3,time=#0,lat=#-1", data.cube.sel(lon=slice(100, 200, 3)).isel(time=0, lat=-1)),
        ("lon=#3", data.cube.isel(lon=3)),
        ("lon=360,0", data.cube.sel(lon=360).isel(time=0)),
    ]:
        path = files / "cube" / f"cube@{text}.cf.npy"
        if expected is None:
            assert not path.exists(), text
        else:
            np.testing.assert_array_equal(np.load(path), expected.values, err_msg=text)
            raw = path.with_name(f"cube@{text}.nrrd")
            assert raw.exists() == (expected.ndim > 0)


def test_values_are_those_that_xarray_decodes(mounted):
    import xarray

    store, files = mounted
    decoded = xarray.open_zarr(store, consolidated=False)
    assert len(decoded.variables) > 100
    for name, expected in decoded.variables.items():
        found = np.load(files / name / f"{name}.cf.npy", mmap_mode="r")
        what = (name, dict(zarr.open_group(store, mode="r")[name].attrs), found.dtype, expected.dtype)
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected.values, err_msg=str(what))


def test_other_programs_read_values_as_they_are_meant(mounted):
    import nrrd
    import xarray
    from astropy.io import fits

    store, files = mounted
    expected = xarray.open_zarr(store, consolidated=False).scaled.values
    assert expected.dtype == "f8" and np.isnan(expected).sum() == 0
    found, header = nrrd.read(str(files / "scaled" / "scaled.cf.nrrd"), index_order="C")
    np.testing.assert_array_equal(found, expected)
    assert "scale_factor" not in header
    with fits.open(files / "scaled" / "scaled@::-1.cf.fits") as opened:
        np.testing.assert_array_equal(opened[0].data, expected[::-1])


def test_any_number_of_names_takes_no_memory(stores):
    """What is kept of a name is given back when the kernel forgets it."""
    with mounting.Daemon(stores / "3.zarr") as daemon:
        folder = daemon.files / "cube"

        def look_up(number):
            for at in range(number):
                assert (folder / f"cube@:,:,{at % 37}:{at}:{at % 11 + 1}.npy").exists()

        def resident():
            with open(f"/proc/{daemon.process.pid}/status") as status:
                return int(status.read().split("VmRSS:")[1].split()[0])

        look_up(1000)
        before = resident()
        look_up(10000)
        assert resident() - before < 10000, "KiB for 10000 names, of which the kernel keeps some"
