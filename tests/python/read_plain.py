"""Reads arrays of plain stores with one library; runs in the library's own interpreter, and knows nothing of zarrfs.

    python read_plain.py READER < JOBS

A job is a line of JSON: `id`, `store` and `array` (the folder of the array is at this path below the store's), and
`dtype` and `box` if those are known. For each a line of JSON is printed: `id`, and `shape` and `sha256` of the elements
as the corpus has them (../shared/corpus/README.md), or `error`. The readers are the functions of READERS.
"""

import hashlib
import json
import os
import sys
import warnings
from functools import cache

import numpy as np
from numpy.lib.recfunctions import repack_fields


def zarr_v2(store, array, box):
    import zarr

    options = {} if zarr.__version__.startswith("2.") else {"zarr_format": 2}
    return zarr.open_array(folder(store, array), mode="r", **options)[box]


def zarr_v3(store, array, box):
    import zarr

    return zarr.open_array(folder(store, array), mode="r", zarr_format=3)[box]


def consolidated_v2(store, array, box):
    """Finds the array in the consolidated metadata of the root."""
    return from_group(store, array, box) if array else zarr_v2(store, array, box)


def consolidated_v3(store, array, box):
    return from_group(store, array, box) if array else zarr_v3(store, array, box)


def from_group(store, array, box):
    return opened_group(store)[array][box]


@cache
def opened_group(store):
    import zarr

    return zarr.open_consolidated(store, mode="r")


def tensorstore_v2(store, array, box):
    return read_tensorstore("zarr", store, array, box)


def tensorstore_v3(store, array, box):
    return read_tensorstore("zarr3", store, array, box)


def read_tensorstore(driver, store, array, box):
    import tensorstore

    spec = {"driver": driver, "kvstore": {"driver": "file", "path": folder(store, array)}}
    return tensorstore.open(spec, open=True, read=True).result()[box].read().result()


def xarray_v2(store, array, box):
    return read_xarray(2, store, array, box)


def xarray_v3(store, array, box):
    return read_xarray(3, store, array, box)


def read_xarray(version, store, array, box):
    import xarray

    group, name = os.path.split(folder(store, array))
    options = {"zarr_format": version, "consolidated": False, "decode_cf": False, "chunks": None}
    with xarray.open_zarr(group, drop_variables=set(os.listdir(group)) - {name}, **options) as dataset:
        return dataset[name][box].values


def gdal_v2(store, array, box):
    from osgeo import gdal

    gdal.UseExceptions()
    opened = gdal.OpenEx(folder(store, array), gdal.OF_MULTIDIM_RASTER).GetRootGroup()
    (name,) = opened.GetMDArrayNames()
    found = opened.OpenMDArray(name)
    if box is ...:
        return found.ReadAsArray()
    return found.ReadAsArray([part.start for part in box], [part.stop - part.start for part in box])


def netcdf(store, array, box):
    """Reads the file that `nccopy` has made of a store."""
    return opened_file(store)[array][box]


@cache
def opened_file(store):
    import netCDF4

    dataset = netCDF4.Dataset(store)
    dataset.set_auto_maskandscale(False)
    dataset.set_auto_chartostring(False)
    return dataset


def folder(store, array):
    return f"{store}/{array}".rstrip("/")


READERS = [
    zarr_v2, zarr_v3, consolidated_v2, consolidated_v3, tensorstore_v2, tensorstore_v3, xarray_v2, xarray_v3, gdal_v2, netcdf
]


def same_as(values, dtype):
    """Returns values of a larger type, which a library has for want of the array's own, as the array's own."""
    dtype = np.dtype(dtype)
    if values.dtype.kind in "OTV" or dtype.kind in "OTVSUmM" or values.dtype == dtype:
        return values
    smaller = values.astype(dtype)
    np.testing.assert_array_equal(smaller.astype(values.dtype), values)
    return smaller


def little_endian(values):
    """Returns the bytes of elements in C order, little-endian; elements of no fixed length after their lengths."""
    if values.dtype.kind in "OT":
        return b"".join(len(data).to_bytes(4, "little") + data for data in map(element, values.flat))
    if values.dtype.names:
        values = repack_fields(values, recurse=True)
    values = values.astype(values.dtype.newbyteorder("<"))
    return np.ascontiguousarray(values).tobytes()


def element(value):
    """Returns the bytes of an element of no fixed length."""
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes) else np.asarray(value).tobytes()


def answer(reader, job):
    """Reads an array and returns the line for it."""
    box = tuple(slice(*ends) for ends in job["box"]) if job.get("box") else ...
    try:
        values = np.asarray(reader(job["store"], job["array"], box))
        if job.get("dtype"):
            values = same_as(values, job["dtype"])
        digest = hashlib.sha256(little_endian(values)).hexdigest()
        return {"id": job["id"], "shape": values.shape, "sha256": digest}
    except Exception as error:  # A library fails in as many ways as there are arrays.
        return {"id": job["id"], "error": f"{type(error).__name__}: {error}"[:300]}


def main():
    warnings.simplefilter("ignore")
    reader = {reader.__name__: reader for reader in READERS}[sys.argv[1]]
    for line in sys.stdin:
        print(json.dumps(answer(reader, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
