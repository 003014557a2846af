"""Random arrays and choices for chunks that numcodecs encodes: every bit of a type is used, and values repeat."""

import numpy as np

INTEGERS = "i1 i2 i4 i8 u1 u2 u4 u8".split()
FLOATS = "f2 f4 f8".split()
ALL = ["b1", *INTEGERS, *FLOATS, "c8", "c16"]


def a_shape(random, last=1):
    """Returns a shape whose last dimension is a multiple of `last`."""
    shape = [int(n) for n in random.integers(1, 9, random.integers(0 if last == 1 else 1, 4))]
    if shape:
        shape[-1] *= last
    if shape and random.random() < 0.1:
        shape[-1] *= 3000
    return tuple(shape)


def a_dtype(random, kinds):
    """Returns a type in either byte order."""
    return np.dtype(str(random.choice(["<", ">"])) + str(random.choice(kinds)))


def an_array(random, dtype, shape=None):
    """Returns values over the whole range of a type, in runs, so that they compress."""
    shape = a_shape(random) if shape is None else shape
    size = int(np.prod(shape))
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    values = np.frombuffer(random.bytes(size * dtype.itemsize), dtype)
    run = int(random.choice([1, 5, 40]))
    return np.repeat(values[: -(-size // run)], run)[:size].reshape(shape)


def small(random, dtype, most=100, shape=None):
    """Returns whole numbers from 0 up to `most`, and for floats fractions of them."""
    shape = a_shape(random) if shape is None else shape
    values = np.asarray(random.random(shape)) * most
    if dtype.kind in "iu":
        values = np.floor(values)
    return np.asarray(values, dtype)


def plain(random, values):
    return values[int(random.integers(len(values)))]


def a_compressor(random):
    return plain(random, [None, None, {"id": "zlib", "level": 1}, {"id": "lz4"}])
