#!/usr/bin/env python3
"""Makes the sample stores: climate.zarr (final v3), relief.zarr (v2) and cells.zarr (an OME-Zarr image, version 0.5).

    samples/make.py [FOLDER]

The content is computed, so the same versions of zarr-python and numpy (those that `scripts/setup` installs)
make the same stores again. The stores are small, because they are in the repository. `scripts/try` and the tests mount
them.
"""

import base64
import shutil
import struct
import sys
import warnings
from pathlib import Path

import numpy as np
import zarr
from numcodecs import Blosc
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

# Consolidated metadata in v3 is what xarray writes, though no text specifies it yet.
warnings.filterwarnings("ignore", message="Consolidated metadata")

FILL = float(np.float32(1e20))
# An attribute of a float in v3 as xarray writes it; it opens no store that has a number there.
ENCODED_FILL = base64.standard_b64encode(struct.pack("<d", FILL)).decode()


def rounded(values, bits):
    """Returns `values` as float32 with `bits` bits of mantissa: what real archives do before they compress."""
    words = np.asarray(values, dtype="<f4").view("<u4")
    drop = 23 - bits
    half = np.uint32(1 << (drop - 1))
    mask = np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    return ((words + half) & mask).view("<f4")


def array(group, name, data, chunks, dimensions, attributes, **more):
    """Writes one array; chunks that hold nothing but the fill value are not stored."""
    created = group.create_array(
        name,
        shape=data.shape,
        dtype=data.dtype,
        chunks=chunks,
        dimension_names=dimensions,
        attributes=attributes,
        config={"write_empty_chunks": False},
        **more,
    )
    created[...] = data


def coordinates(group, time, lat, lon):
    """Writes the three coordinate variables."""
    array(
        group,
        "time",
        time,
        time.shape,
        ["time"],
        {
            "axis": "T",
            "standard_name": "time",
            "long_name": "time",
            "units": "days since 2000-01-01 00:00:00",
            "calendar": "noleap",
        },
        compressors=None,
    )
    array(
        group,
        "lat",
        lat,
        lat.shape,
        ["lat"],
        {
            "axis": "Y",
            "standard_name": "latitude",
            "long_name": "latitude",
            "units": "degrees_north",
        },
        compressors=None,
    )
    array(
        group,
        "lon",
        lon,
        lon.shape,
        ["lon"],
        {
            "axis": "X",
            "standard_name": "longitude",
            "long_name": "longitude",
            "units": "degrees_east",
        },
        compressors=None,
    )


def variables(group, time, lat, lon, random):
    """Writes temperature, pressure and precipitation on time, lat, lon."""
    t, y, x = np.meshgrid(time / 365, np.radians(lat), np.radians(lon), indexing="ij")
    season = np.cos(2 * np.pi * t) * np.sin(y)
    weather = np.sin(3 * x + 9 * t) * np.cos(2 * y)
    noise = random.random(t.shape)

    tas = 300 - 45 * np.sin(y) ** 2 - 12 * season + 3 * weather + noise
    array(
        group,
        "tas",
        rounded(tas, 9),
        (6, 18, 36),
        ["time", "lat", "lon"],
        {
            "standard_name": "air_temperature",
            "long_name": "Near-Surface Air Temperature",
            "units": "K",
            "cell_methods": "area: time: mean",
            "cell_measures": "area: areacella",
            "_FillValue": ENCODED_FILL,
            "missing_value": FILL,
        },
        fill_value=FILL,
        compressors=ZstdCodec(level=9),
    )

    psl = np.round((101325 + 900 * weather - 600 * season - 100000) / 10)
    array(
        group,
        "psl",
        psl.astype("<i2"),
        (12, 36, 72),
        ["time", "lat", "lon"],
        {
            "standard_name": "air_pressure_at_mean_sea_level",
            "long_name": "Sea Level Pressure",
            "units": "Pa",
            "scale_factor": 10.0,
            "add_offset": 100000.0,
            "_FillValue": -32768,
        },
        fill_value=-32768,
        compressors=BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
    )

    # The first half year was never written: its chunk is missing and reads as NaN.
    pr = np.maximum(0, weather + noise - 0.9).astype("<f4") * np.float32(1e-4)
    pr[:6] = np.nan
    array(
        group,
        "pr",
        rounded(pr, 6),
        (6, 36, 72),
        ["time", "lat", "lon"],
        {
            "standard_name": "precipitation_flux",
            "long_name": "Precipitation",
            "units": "kg m-2 s-1",
            "cell_methods": "area: time: mean",
        },
        fill_value=float("nan"),
        compressors=GzipCodec(level=6),
    )


def volume(group, random):
    """Writes a 3-D volume in shards of small inner chunks."""
    depth, y, x = np.meshgrid(
        np.arange(32), np.arange(80), np.arange(80), indexing="ij"
    )
    layers = np.sin(depth / 5 + np.sin(x / 17) + np.cos(y / 23))
    body = (x - 40) ** 2 + (y - 40) ** 2 < 38**2
    data = np.where(body, 2000 + 900 * layers + 16 * random.random(x.shape), 0)
    array(
        group,
        "volume",
        (data.astype("<u2") & np.uint16(0xFFF8)),
        (8, 16, 16),
        ["z", "y", "x"],
        {
            "long_name": "amplitude",
            "units": "1",
            "spacing": [0.5, 0.25, 0.25],
            "origin": [0, 0, 0],
        },
        shards=(32, 48, 48),
        fill_value=0,
        compressors=[ZstdCodec(level=9), Crc32cCodec()],
    )


def climate(path):
    """Makes the v3 store."""
    random = np.random.default_rng(2000)
    time = np.arange(15.5, 365, 365 / 12)
    lat = np.arange(-87.5, 90, 5)
    lon = np.arange(2.5, 360, 5)
    root = zarr.create_group(
        path,
        zarr_format=3,
        attributes={
            "Conventions": "CF-1.10",
            "title": "Sample climate fields for zarrfs",
            "institution": "computed, not observed",
            "source": "samples/make.py",
            "history": "2000-01-01T00:00:00Z made with zarr-python",
            "frequency": "mon",
        },
    )
    coordinates(root, time, lat, lon)
    variables(root, time, lat, lon, random)
    survey = root.create_group("survey", attributes={"long_name": "A volume in shards"})
    volume(survey, random)
    zarr.consolidate_metadata(path)


def relief(path):
    """Makes the v2 store: big-endian, Fortran order, consolidated."""
    y, x = np.meshgrid(np.arange(60), np.arange(90), indexing="ij")
    height = 1500 * np.sin(x / 14) * np.cos(y / 9) + 300 * np.sin(x * y / 250)
    root = zarr.create_group(path, zarr_format=2, attributes={"title": "Relief"})
    made = root.create_array(
        "height",
        shape=height.shape,
        dtype=">i2",
        chunks=(32, 32),
        order="F",
        fill_value=-9999,
        compressors=Blosc(cname="zstd", clevel=5, shuffle=Blosc.SHUFFLE),
        chunk_key_encoding={"name": "v2", "separator": "."},
        attributes={
            "_ARRAY_DIMENSIONS": ["y", "x"],
            "standard_name": "surface_altitude",
            "units": "m",
        },
    )
    made[...] = height.astype(">i2")
    mask = root.create_array(
        "sea",
        shape=height.shape,
        dtype="|b1",
        chunks=(60, 90),
        fill_value=False,
        compressors=None,
        attributes={"_ARRAY_DIMENSIONS": ["y", "x"]},
    )
    mask[...] = height < 0
    zarr.consolidate_metadata(path)


def cells(path):
    """Makes the OME-Zarr image: two channels of cells, in two resolutions, with axes c, y, x in micrometres."""
    y, x = np.meshgrid(np.arange(96), np.arange(128), indexing="ij")
    image = np.zeros((2, 96, 128), dtype="<u2")
    for row, column, radius in ((20, 25, 11), (28, 80, 14), (64, 48, 13), (70, 104, 12)):
        distance = np.hypot(y - row, x - column)
        image[0] += (np.clip(radius - distance, 0, None) * 250).astype("<u2")
        image[1] += (np.clip(radius / 3 - distance, 0, None) * 900).astype("<u2")
    axes = [
        {"name": "c", "type": "channel"},
        {"name": "y", "type": "space", "unit": "micrometer"},
        {"name": "x", "type": "space", "unit": "micrometer"},
    ]
    scales = [
        {"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": [1.0, 0.5 * 2**level, 0.5 * 2**level]}]}
        for level in range(2)
    ]
    channels = [
        {"label": label, "color": color, "active": True, "window": {"min": 0, "max": 4095, "start": 0, "end": end}}
        for label, color, end in (("cytoplasm", "00FF00", 3500), ("nucleus", "0000FF", 4095))
    ]
    ome = {
        "version": "0.5",
        "multiscales": [{"name": "cells", "axes": axes, "datasets": scales}],
        "omero": {"channels": channels},
    }
    root = zarr.create_group(path, zarr_format=3, attributes={"ome": ome})
    for level in range(2):
        data = image[:, :: 2**level, :: 2**level]
        array(root, str(level), data, (1, 48, 64), ["c", "y", "x"], {}, fill_value=0, compressors=ZstdCodec(level=9))


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, make in (("climate.zarr", climate), ("relief.zarr", relief), ("cells.zarr", cells)):
        shutil.rmtree(folder / name, ignore_errors=True)
        make(folder / name)


if __name__ == "__main__":
    main()
