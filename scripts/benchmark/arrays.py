"""The arrays of the benchmark: one field, stored in several ways under target/bench.

The field is a sum of sines plus noise, rounded to 12 bits of mantissa: it compresses about as well as a variable
of a climate model. One plane is 1 MiB, so an array of N MiB has N planes.
"""

import shutil
from collections import namedtuple

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from mounting import ROOT

FOLDER = ROOT / "target" / "bench"
PLANE = (512, 512)
MIB = 1 << 20

# How an array is stored, and the aims for a cold read: the ratio to zarrs in process, and to a fuser that
# replies from a buffer.
Case = namedtuple("Case", "name options zarrs_aim buffer_aim")


def blosc():
    return BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")


CASES = [
    Case("none-4M", dict(chunks=(64, 128, 128), compressors=None), None, 0.9),
    Case("planes-zstd-1M", dict(chunks=(1, 512, 512), compressors=ZstdCodec(level=1)), 0.75, None),
    Case("blosc-lz4-1M", dict(chunks=(64, 64, 64), compressors=blosc()), 0.45, None),
    Case("blosc-lz4-8M", dict(chunks=(128, 128, 128), compressors=blosc()), 0.45, None),
    Case(
        "zstd-1M",
        dict(chunks=(64, 64, 64), compressors=ZstdCodec(level=1)),
        0.75,
        None,
    ),
    Case(
        "zstd-8M",
        dict(chunks=(128, 128, 128), compressors=ZstdCodec(level=1)),
        0.75,
        None,
    ),
    Case(
        "gzip-4M",
        dict(chunks=(64, 128, 128), compressors=GzipCodec(level=1)),
        1.3,
        None,
    ),
    Case(
        "F-order-4M",
        dict(chunks=(64, 128, 128), compressors=None, order="F", zarr_format=2),
        5.0,
        None,
    ),
    Case(
        "sharded-zstd-8M-16K",
        dict(
            shards=(128, 128, 128), chunks=(16, 16, 16), compressors=ZstdCodec(level=1)
        ),
        1.0,
        None,
    ),
]


# The same compression in v2.
V2_COMPRESSORS = {
    type(None): None,
    ZstdCodec: numcodecs.Zstd(level=1),
    BloscCodec: numcodecs.Blosc("lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
    GzipCodec: numcodecs.GZip(level=1),
}


def case(name):
    """Returns the case of that name."""
    return next(case for case in CASES if case.name == name)


def chosen(arguments):
    """Returns the cases that the arguments ask for."""
    return [case for case in CASES if arguments.only in case.name]


def field(size):
    """Returns the values, float32 of `size` planes."""
    random = np.random.default_rng(1)
    y, x = np.meshgrid(*map(np.arange, PLANE), indexing="ij")
    values = np.empty((size, *PLANE), "<f4")
    for z in range(size):
        waves = np.sin(z / 19 + x / 31) + np.sin(y / 47 - z / 53) + np.sin(x * y / 9e3)
        values[z] = waves + random.normal(0, 0.03, PLANE)
    words = values.view("<u4")
    words += 1 << 10
    words &= np.uint32(0xFFFFF800)
    return values


def store(case, size):
    """Returns the store of a case, which is a root array; makes it the first time."""
    path = FOLDER / str(size) / f"{case.name}.zarr"
    if not path.exists():
        print(f"making {path}", flush=True)
        part = path.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        options = {"zarr_format": 3, **case.options}
        array = zarr.create_array(
            part, shape=(size, *PLANE), dtype="<f4", fill_value=0, **options
        )
        array[...] = field(size)
        part.rename(path)
    return path


def in_v2(case, size):
    """Returns the store of a case in v2, for readers of v2 only; `None` for shards."""
    if case.options.get("zarr_format") == 2:
        return store(case, size)
    if "shards" in case.options:
        return None
    compressor = case.options["compressors"]
    options = {"zarr_format": 2, "compressors": V2_COMPRESSORS[type(compressor)], "chunks": case.options["chunks"]}
    return store(case._replace(name=f"{case.name}-v2", options=options), size)


def warm_up(store):
    """Reads every stored byte, so that no peer waits for the disk."""
    for path in store.rglob("*"):
        if path.is_file():
            path.read_bytes()
