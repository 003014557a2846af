"""A peer of the benchmark: makes and reads an Icechunk repository with icechunk-python, in a process of its own.

    icechunk_peer.py make FOLDER ARRAY
    icechunk_peer.py whole|first|start ENDPOINT BUCKET PREFIX

`make` copies the array in the .npy file ARRAY into a new repository in FOLDER. `whole` reads the array `a` by xarray,
`first` opens the repository and reads the first element, and `start` is the same from the start of the program. Prints
seconds, bytes and CPU seconds; the imports count for `start` alone.
"""

import time

START = time.perf_counter()

import sys

import icechunk
import numpy as np
import xarray as xr
import zarr

SHAPE_OF_CHUNK = 8


def make(folder, array):
    values = np.load(array, mmap_mode="r")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(folder))
    session = repository.writable_session("main")
    group = zarr.group(store=session.store)
    chunks = tuple(length // SHAPE_OF_CHUNK for length in values.shape)
    codec = zarr.codecs.ZstdCodec(level=1)
    names = ("z", "y", "x")
    made = group.create_array(
        "a", shape=values.shape, dtype=values.dtype, chunks=chunks, compressors=codec, fill_value=0, dimension_names=names
    )
    made[...] = values
    session.commit("the array of the benchmark")


def opened(endpoint, bucket, prefix):
    """Returns the array at the tip of main."""
    storage = icechunk.s3_storage(
        bucket=bucket,
        prefix=prefix,
        region="us-east-1",
        endpoint_url=endpoint,
        allow_http=True,
        force_path_style=True,
        anonymous=True,
    )
    session = icechunk.Repository.open(storage).readonly_session("main")
    return xr.open_zarr(session.store, consolidated=False, chunks=None)["a"]


def whole(*place):
    return opened(*place).values


def first(*place):
    return opened(*place)[0, 0, 0].values


def main(kind, *place):
    if kind == "make":
        return make(*place)
    cpu, start = time.process_time(), START if kind == "start" else time.perf_counter()
    data = {"whole": whole, "first": first, "start": first}[kind](*place)
    print(time.perf_counter() - start, data.nbytes, time.process_time() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
