"""Where things are in the files view: the one place that the tests and scripts take its names from."""

import itertools
import os
from pathlib import Path

SUFFIXES = (".zip", ".zarr", ".n5")


def root_name(store):
    """Returns the name of a store's root: its folder's name less the suffix of its kind."""
    name = Path(store).name
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name


def array_folder(files, array):
    """Returns the folder of the array at node path `array`."""
    return Path(files) / array.strip("/")


def decoded(files, store, array, suffix):
    """Returns the path of an array's decoded file: `suffix` is npy or raw."""
    name = array.strip("/").rpartition("/")[2] or root_name(store)
    return array_folder(files, array) / f"{name}.{suffix}"


def chunk_name(index):
    """Returns the name of a chunk's file, without suffix."""
    return ".".join(map(str, index)) or "0"


def chunk_indices(shape, chunk_shape):
    """Returns the indices of all chunks in C order."""
    counts = (-(-length // chunk) for length, chunk in zip(shape, chunk_shape))
    return itertools.product(*map(range, counts))


def chunk_box(index, shape, chunk_shape):
    """Returns the slices of the array that a chunk covers, clipped to the array's edge."""
    return tuple(
        slice(place * chunk, min((place + 1) * chunk, length))
        for place, length, chunk in zip(index, shape, chunk_shape)
    )


def walk(folder):
    """Returns every path below `folder`, relative to it, folders included."""
    found = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: raise_(error)):
        for name in folders + files:
            found.append(os.path.relpath(os.path.join(parent, name), folder))
    return sorted(found)


def raise_(error):
    raise error
