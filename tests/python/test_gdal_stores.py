"""Stores that GDAL writes: zarrfs reads the values that GDAL was given, and `zarrfs check` finds no error.

GDAL 3.6, which Debian has, writes v2 and the draft of 2020; GDAL 3.10, which rasterio has, writes v2 and final v3.
"""

import io
import shutil
import subprocess

import numpy as np
import pytest

import needs
import programs
from mounting import program

# GDAL writes these options into the metadata in words of its own, or leaves out what the text demands.
OPTIONS = [
    {},
    {"COMPRESS": "GZIP", "CHUNK_MEMORY_LAYOUT": "F"},
    {"COMPRESS": "BLOSC", "BLOSC_SHUFFLE": "NONE"},
    {"COMPRESS": "BLOSC", "BLOSC_SHUFFLE": "BIT"},
]


def with_rasterio(source, store, options):
    import rasterio.shutil

    rasterio.shutil.copy(source, store, driver="Zarr", **options)


def with_debian(source, store, options):
    needs.require("gdal_translate", shutil.which("gdal_translate"), source=programs.SOURCE)
    stated = [part for name, value in options.items() for part in ("-co", f"{name}={value}")]
    subprocess.run(["gdal_translate", "-q", "-of", "Zarr", *stated, source, store], check=True, capture_output=True)


# A writer, a format and a type of elements, and the value for no data.
CASES = [
    (with_rasterio, "ZARR_V2", "int16", None),
    (with_rasterio, "ZARR_V2", "complex64", 5.0),
    (with_rasterio, "ZARR_V3", "int16", None),
    (with_rasterio, "ZARR_V3", "float32", 7.0),
    (with_rasterio, "ZARR_V3", "complex64", 5.0),
    (with_debian, "ZARR_V2", "float32", 7.0),
    (with_debian, "ZARR_V3", "int16", None),
    (with_debian, "ZARR_V3", "float32", 7.0),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()) or "plain")
@pytest.mark.parametrize("write, version, dtype, nodata", CASES)
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_stores_that_gdal_writes_are_read(tmp_path, write, version, dtype, nodata, options):
    import rasterio

    values = np.arange(1, 601).reshape(20, 30).astype(dtype)
    # A chunk that has nothing but the value for no data is not stored.
    values[:8, :7] = nodata or 0
    source, store = tmp_path / "source.tif", tmp_path / "written.zarr"
    shape = {"height": 20, "width": 30, "count": 1}
    with rasterio.open(source, "w", driver="GTiff", dtype=dtype, nodata=nodata, **shape) as opened:
        opened.write(values, 1)
    write(source, store, {"FORMAT": version, "BLOCKSIZE": "8,7", "ARRAY_NAME": "A", **options})
    select = [program(), "cat", "--format", "npy", "--select", "...", store / "A"]
    read = subprocess.run(select, capture_output=True, check=True)
    np.testing.assert_array_equal(np.load(io.BytesIO(read.stdout)), values)
    checked = subprocess.run([program(), "check", store], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
