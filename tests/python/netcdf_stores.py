"""Stores as xarray writes them: what CMIP6 and ERA5 hold, and what xarray has for each type of numpy."""

import numpy as np
import xarray


def cmip6():
    """Monthly means with the bounds of their coordinates, whose dimension `bnds` has no variable, and a scalar coordinate."""
    count, random = 36, np.random.default_rng(1)
    times = np.datetime64("2019-01-16T12", "ns") + np.arange(count) * np.timedelta64(30, "D")
    half = np.timedelta64(15, "D")
    made = xarray.Dataset(
        {
            "tas": (("time", "lat", "lon"), random.random((count, 6, 8)).astype("f4"), {"units": "K"}),
            "areacella": (("lat", "lon"), random.random((6, 8)).astype("f4")),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
        },
        {
            "time": ("time", times, {"bounds": "time_bnds", "axis": "T"}),
            "lat": ("lat", np.linspace(-75, 75, 6), {"bounds": "lat_bnds", "units": "degrees_north"}),
            "lon": ("lon", np.arange(8) * 45.0, {"bounds": "lon_bnds", "units": "degrees_east"}),
            "time_bnds": (("time", "bnds"), np.stack([times - half, times + half], 1)),
            "lat_bnds": (("lat", "bnds"), random.random((6, 2))),
            "lon_bnds": (("lon", "bnds"), random.random((8, 2))),
            "height": ((), 2.0, {"units": "m"}),
        },
        {"Conventions": "CF-1.7", "source_id": "made"},
    )
    made.time.encoding.update(units="days since 1850-01-01", calendar="proleptic_gregorian", dtype="f8", _FillValue=None)
    made.tas.encoding.update(_FillValue=np.float32(1e20), grid_mapping="crs")
    return made


def era5():
    """Hourly fields in packed numbers, with coordinates beside those of the dimensions, truth values, texts and durations."""
    random = np.random.default_rng(2)
    times = np.datetime64("2020-01-01", "ns") + np.arange(72) * np.timedelta64(1, "h")
    made = xarray.Dataset(
        {
            "t2m": (("time", "latitude", "longitude"), random.random((72, 5, 7)) * 30 + 270, {"units": "K"}),
            "mask": (("latitude", "longitude"), random.random((5, 7)) > 0.5),
            "count": (("latitude", "longitude"), np.arange(35).reshape(5, 7)),
            "kind": (("latitude",), np.array(["a", "b\u00fc", "", "dddd", "e"])),
            "lead": (("step",), np.array([0, 6, 12], "timedelta64[h]").astype("m8[ns]")),
        },
        {
            "time": times, "latitude": np.linspace(10, 0, 5), "longitude": np.arange(7) * 0.25, "number": 0,
            "valid_time": (("time",), times + np.timedelta64(1, "h")),
        },
    )
    made.t2m.encoding.update(dtype="i2", scale_factor=0.001, add_offset=285.0, _FillValue=-32767)
    return made


MADE = {"cmip6": cmip6, "era5": era5}
# The variable of each of which files of a part are made.
FIELD = {"cmip6": "tas", "era5": "t2m"}


def write(folder):
    """Writes each dataset as a store of v2 and one of v3; returns their names."""
    names = []
    for version in (2, 3):
        for name, make in MADE.items():
            make().to_zarr(folder / f"{name}_{version}.zarr", zarr_format=version, consolidated=version == 2)
            names.append(f"{name}_{version}")
    return names
