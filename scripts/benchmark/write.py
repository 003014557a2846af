"""Writes through a mount with --cow: an array by zarr-python, compared with a plain directory; a decoded file in place,
compared with zarr-python's own writes of the same chunks."""

import os
import shutil
import time

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

import arrays
import host_memory
import peers
import table

MIB = 1 << 20

# Chunks along each dimension of the array.
GRID = (8, 8, 8)


def run(arguments):
    if arguments.size % GRID[0]:
        raise SystemExit(f"--size has to be a multiple of {GRID[0]}")
    shape = (arguments.size, *arrays.PLANE)
    chunks = tuple(length // parts for length, parts in zip(shape, GRID))
    data = np.round(np.random.default_rng(1).normal(size=shape) * 100).astype("f4")
    changed = data + 1
    folder = arrays.FOLDER / "write"
    shutil.rmtree(folder, ignore_errors=True)
    done = {"mount": [], "plain": [], "npy": [], "chunks": [], "mount before": [], "npy before": []}
    for number in range(arguments.rounds):
        place = folder / str(number)
        plain, store = place / "plain", place / "store"
        store.mkdir(parents=True)
        done["plain"].append(write(plain / "a", data, chunks))
        done["chunks"].append(overwrite(plain / "a", changed))
        # The builds take turns at being first.
        if number % 2:
            older(arguments, place, (data, changed), chunks, done)
        with peers.Ours(store, "--cow", place / "upper") as mount:
            done["mount"].append(write(mount.path / "a", data, chunks))
            inside = mount.path / ".zarrfs/files/a/a.npy"
            done["npy"].append(in_place(inside, changed))
            check(mount.path / "a", changed)
        if number % 2 == 0:
            older(arguments, place, (data, changed), chunks, done)
    # ext4 is slow to use the inodes of files again that were removed a moment ago, so all is removed at the end.
    shutil.rmtree(folder)
    return [
        table.speeds("array by zarr-python", "plain folder", done["mount"], done["plain"], 0.95),
        *table.since(done["mount"], done["mount before"]),
        table.speeds(".npy in place", "zarr-python, chunks", done["npy"], done["chunks"], 1.0),
        *table.since(done["npy"], done["npy before"]),
    ]


def older(arguments, place, contents, chunks, done):
    """Does the same by an older build, if there is one."""
    if not arguments.before:
        return
    data, changed = contents
    store = place / "store before"
    store.mkdir()
    with peers.built(arguments.before), peers.Ours(store, "--cow", place / "upper before") as mount:
        done["mount before"].append(write(mount.path / "a", data, chunks))
        done["npy before"].append(in_place(mount.path / ".zarrfs/files/a/a.npy", changed))


def timed(work, size):
    """Measures one writer; what others wrote before is on the disk by then."""
    os.sync()
    host_memory.touch(size)
    start = time.perf_counter()
    work()
    return peers.Read(time.perf_counter() - start, size, 0.0)


def write(path, data, chunks):
    def work():
        array = zarr.create_array(
            path, shape=data.shape, chunks=chunks, dtype=data.dtype, compressors=[ZstdCodec(level=1)]
        )
        array[:] = data

    return timed(work, data.nbytes)


def overwrite(path, data):
    def work():
        zarr.open_array(path, mode="r+")[:] = data

    return timed(work, data.nbytes)


def in_place(path, data):
    def work():
        with open(path, "r+b", buffering=0) as file:
            file.seek(file.seek(0, 2) - data.nbytes)
            rest = memoryview(data).cast("B")
            while rest:
                rest = rest[file.write(rest[: 4 * MIB]) :]

    return timed(work, data.nbytes)


def check(path, data):
    assert (zarr.open_array(path, mode="r")[:] == data).all()
