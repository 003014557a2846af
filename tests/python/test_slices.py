"""Selected elements by name, as numpy and xarray select them, and values as xarray decodes them."""

import base64
import os
import struct

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


def test_selections_equal_those_of_numpy(mounted):
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
    # Elements that were looked up are listed with their headers, and no other selection is.
    listed = {name for name in os.listdir(files / "cube") if not name.endswith((".hdr", ".mhd", ".nhdr", ".raw"))}
    assert listed == {"attributes.json", "cube.npy", "metadata.json"}
    for text in ("5", "0,0,0,0", "x", "::0", "cube=1", "lat=1000"):
        with pytest.raises(FileNotFoundError):
            os.stat(files / "cube" / f"cube@{text}.npy")


def test_labels_select_like_xarray(mounted):
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


# Invariant (formats): CF-decoded values equal those that xarray decodes.
def test_decoded_values_equal_those_of_xarray(mounted):
    import xarray

    store, files = mounted
    decoded = xarray.open_zarr(store, consolidated=False)
    assert len(decoded.variables) > 100
    for name, expected in decoded.variables.items():
        found = np.load(files / name / f"{name}.cf.npy", mmap_mode="r")
        what = (name, dict(zarr.open_group(store, mode="r")[name].attrs), found.dtype, expected.dtype)
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected.values, err_msg=str(what))


UNITS = ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"]
COUNTS = [*UNITS, "day", "hour", "second", "Days", "hrs", "h", "sec", "s", "min", "d", "ms"]
DATES = ["2000-01-01", "1970-01-01 00:00:00", "1990-5-1 06:30", "1850-01-01T00:00:00Z", "2000-01-01 12:00:00.5", "0001-01-01",
         "1582-10-15", "1500-03-01", "2001-02-03 04:05:06 +02:00", "1900-01-01 00:00:00 UTC", "1999-12-31T23:59:59.123456789"]
CALENDARS = [None, "standard", "gregorian", "proleptic_gregorian", "Gregorian"]


def random_numbers(random, dtype, is_time):
    """Returns numbers over the range of a type, or small ones where they count, with NaN and infinities."""
    if dtype.kind == "f":
        data = (random.standard_normal(24) * (50 if is_time else 1000)).astype(dtype)
        data[random.integers(0, 24, 3)] = [np.nan, 0, -0.0]
        if not is_time:
            data[random.integers(0, 24, 2)] = [np.inf, -np.inf]
    elif is_time or random.random() < 0.5:
        data = random.integers(max(np.iinfo(dtype).min, -100), 101, 24).astype(dtype)
    else:
        info = np.iinfo(dtype)
        data = random.integers(info.min, info.max, 24, dtype, endpoint=True)
        data[:4] = [info.min, info.max, 0, 1]
    data[[0, 7, 11]] = data[5] = 3
    return data


def random_attributes(random, version, dtype, is_time):
    """Returns attributes that give numbers a meaning, and the fill value of the array."""
    def one(values):
        return values[int(random.integers(len(values)))]

    found, fill = {}, None if version == 2 else 0
    number = 3.0 if dtype.kind == "f" else 3
    match one(["", "", "missing", "list", "fill", "both", "nan"]):
        case "missing":
            found["missing_value"] = number
        case "list":
            found["missing_value"] = [number, number + 1]
        case "nan" if dtype.kind == "f" and version == 2:
            fill = float("nan")
        case "fill" | "both" if version == 2:
            fill = number
        case "fill" | "both" if dtype.kind == "f":
            found["_FillValue"] = base64.b64encode(struct.pack("<d", number)).decode()
        case "fill" | "both":
            found["_FillValue"] = number
    if random.random() < 0.4:
        found["scale_factor"] = one([2, 3, -1, 0, 1, 0.1, 0.5, 2.0, 1.0, -0.25, 1e-300, 1e10, 10**12, float(np.float32(0.1))])
    if random.random() < 0.3:
        found["add_offset"] = one([7, -3, 0, 1.0, 0.0, -3.25, 273.15, 10**9, float(np.float32(273.15))])
    if dtype.kind in "iu" and random.random() < 0.2:
        found["_Unsigned"] = one(["true", "false"])
    if is_time and random.random() < 0.7:
        found["units"] = f"{one(COUNTS)} since {one(DATES)}"
        found.update({"calendar": calendar} if (calendar := one(CALENDARS)) else {})
    elif is_time:
        found["units"] = one(UNITS)
        found["dtype"] = f"timedelta64[{one(['s', 'ms', 'us', 'ns', 'D'])}]"
    else:
        found.update(one([{}, {}, {}, {"dtype": "bool"}, {"units": "K"}, {"units": "days accumulated"}, {"units": "hours"}]))
    return found, fill


# Invariant of `test_decoded_values_equal_those_of_xarray`.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", [2, 3])
def test_random_attributes_decode_like_xarray(tmp_path, version):
    """Element by element, with the type and the sign of zero; what xarray refuses or returns as objects is left out.

    SEED has others made; in masked unsigned milliseconds of this one are numbers beyond those of int64.
    """
    seed = int(os.environ.get("SEED") or 2992851840)
    random, made = np.random.default_rng(seed), {}
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    for number in range(150):
        dtype, is_time = np.dtype(str(random.choice([*"i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split()]))), random.random() < 0.4
        data = random_numbers(random, dtype, is_time)
        attributes, fill = random_attributes(random, version, dtype, is_time)
        names = {"dimension_names": ["n"]} if version == 3 else {}
        array = root.create_array(f"g{number}/a", shape=24, dtype=dtype, chunks=9, attributes=attributes, fill_value=fill, **names)
        array[...] = data
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = ["n"]
        made[f"g{number}"] = (data, attributes)
    with mounting.Mount(tmp_path / "a.zarr") as mount:
        compared = [name for name in made if is_that_of_xarray(tmp_path / "a.zarr", mount.files, name, made, seed)]
    assert len(compared) > 40


def is_that_of_xarray(store, files, name, made, seed):
    """Compares the values of one array with those of xarray; says whether these are comparable."""
    import xarray

    data, attributes = made[name]
    try:
        expected = xarray.open_zarr(store, group=name, consolidated=False, chunks=None).variables["a"].values
    except (ValueError, OverflowError, TypeError):
        return False
    found, what = np.load(files / name / "a/a.cf.npy"), str((seed, name, data.dtype, attributes))
    if expected.dtype.kind == "O":
        return False
    if expected.dtype.kind == "M" and np.isnat(expected).all() and (np.isnat(found) & ~np.isin(data, [3, 4])).any():
        # Where one of the numbers is beyond the dates of its unit, xarray may have none for any of them.
        return False
    is_float = data.dtype.kind == "f" or "scale_factor" in attributes or "add_offset" in attributes
    if expected.dtype.kind == "m" and is_float:
        # Its unit, and the precision with it, depend on whether any of the numbers has a fraction, and ours do not.
        assert found.dtype.kind == "m", what
        return False
    assert found.dtype == expected.dtype, what
    if expected.dtype.kind == "M":
        # Where xarray counts with cftime, a number that is none becomes the date that it counts from.
        expected = np.where(np.isnat(found) & (np.isnan(data.astype("f8")) | np.isin(data, [3, 4])), np.datetime64("NaT"), expected)
    np.testing.assert_array_equal(found, expected, err_msg=what)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]), err_msg=what)
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_missing_complex_numbers_are_masked_like_xarray(tmp_path, version, dtype):
    import xarray

    random = np.random.default_rng(7)
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    data = (random.integers(-3, 4, 90) * 0.1 + 1j * random.integers(-3, 2, 90) * 2).astype(dtype)
    data[10:30:2] = 0
    data[11:30:2] = 3
    data[[3, 4, 5]] = [complex(np.nan, 1), complex(-0.0, 0.0), complex(np.inf, -np.inf)]
    encoded = [base64.b64encode(struct.pack("<d", number)).decode() for number in (0.1, -2.0)]
    cases = [
        ({}, None), ({"missing_value": 0.1}, None), ({"missing_value": [0, 3]}, None), ({"missing_value": float("nan")}, None),
        ({}, 0.1 - 2j), ({}, 0), ({}, complex(float("nan"), 1)), ({"missing_value": 0.3}, 0.1 - 2j),
    ]
    if version == 3:
        cases += [({"_FillValue": encoded}, None), ({"_FillValue": encoded, "missing_value": -0.2}, None)]
    for number, (attributes, fill) in enumerate(cases):
        fill = (0 if version == 3 else None) if fill is None else fill
        names = {"dimension_names": ["n"]} if version == 3 else {}
        array = root.create_array(f"a{number}", shape=90, dtype=dtype, chunks=40, attributes=attributes, fill_value=fill, **names)
        array[:70] = data[:70]
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = ["n"]
    decoded = xarray.open_zarr(tmp_path / "a.zarr", consolidated=False, chunks=None)
    masked = 0
    with mounting.Mount(tmp_path / "a.zarr") as mount:
        for name, expected in decoded.variables.items():
            found = np.load(mount.files / name / f"{name}.cf.npy")
            assert found.dtype == expected.dtype == dtype, name
            np.testing.assert_array_equal(found.view(f"f{found.itemsize // 2}"), expected.values.view(f"f{found.itemsize // 2}"), err_msg=name)
            stored = np.load(mount.files / name / f"{name}.npy")
            masked += int((np.isnan(found) & ~np.isnan(stored)).sum())
    assert masked > 20


def test_other_programs_read_decoded_values(mounted):
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


# Invariant of `any_selection_in_any_format_is_that_of_the_whole`.
def test_many_looked_up_names_take_no_memory(stores):
    """The memory of a name is freed when the kernel forgets it."""
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
