"""Random chunks of fixed types for the codecs that make bytes of elements themselves, or numbers of text.

Each maker gives an array, its filters and its compressor, as those of numcodecs_cases.py do. Left out is what
numcodecs itself cannot write or read back.
"""

import math

import numpy as np

from random_values import INTEGERS, a_compressor, a_dtype, a_shape, an_array, plain, small

# pco has more types of one byte, but numcodecs does not turn them on; it takes no other byte order.
CODED = "<i2 <i4 <i8 <u2 <u4 <u8 <f2 <f4 <f8".split()
LISTED = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 U1 U3 M8[ns] m8[ns] M8[10ps] m8[as]".split()
LETTERS = [*"abc\n\"\\0", "\x00", "\u00e9", "\u4e2d", "\U0001f600"]


def words(random, dtype, shape, letters=LETTERS):
    """Returns text as long as a type holds and shorter."""
    length = np.dtype(dtype.str.replace(">", "<")).itemsize // 4
    lengths = random.integers(0, length + 1, math.prod(shape))
    made = ["".join(random.choice(letters, count)) for count in lengths]
    return np.array(made, dtype).reshape(shape)


def octets(random, dtype, shape):
    """Returns bytes as long as a type holds and shorter."""
    lengths = random.integers(0, dtype.itemsize + 1, math.prod(shape))
    made = [random.bytes(count) for count in lengths]
    return np.array(made, dtype).reshape(shape)


def elements(random, dtype, shape):
    """Returns values of any type that lists hold; of floats also those that are no numbers, of times NaT."""
    if dtype.kind == "U":
        return words(random, dtype, shape)
    if dtype.kind == "S":
        return octets(random, dtype, shape)
    values = np.array(an_array(random, dtype, shape))
    if dtype.kind in "fMm" and random.random() < 0.7:
        special = [np.nan, np.inf, -np.inf, -0.0] if dtype.kind == "f" else ["NaT"]
        chosen = random.random(shape) < 0.2
        values[chosen] = random.choice(special, int(chosen.sum())).astype(dtype)
    return values


def few(random, least_rank=0):
    """Returns a shape of some hundred elements at most, since each is an object of Python."""
    shape = random.integers(1, 7, random.integers(least_rank, 4))
    return tuple(int(length) for length in shape)


def pcodec(random):
    dtype = np.dtype(plain(random, CODED))
    spec = {"id": "pcodec", "level": int(random.integers(0, 13))}
    spec["mode_spec"] = plain(random, ["auto", "classic"])
    # numcodecs 0.16.6 does not find pcodec 1.1.0's name for `none`.
    spec |= plain(
        random,
        [
            {"delta_spec": "auto", "delta_encoding_order": None},
            {"delta_spec": "auto", "delta_encoding_order": int(random.integers(0, 8))},
            {"delta_spec": "try_consecutive", "delta_encoding_order": int(random.integers(0, 8))},
            {"delta_spec": "try_lookback"},
            {},
        ],
    )
    spec["equal_pages_up_to"] = plain(random, [1, 7, 300, 262144])
    make = plain(random, [an_array, small_numbers, multiples])
    array = make(random, dtype, a_shape(random))
    if random.random() < 0.3:
        return array, [], spec
    before = [{"id": "delta", "dtype": dtype.str}] if dtype.kind in "iu" and random.random() < 0.3 else []
    return array, [*before, spec], a_compressor(random)


def small_numbers(random, dtype, shape):
    return small(random, dtype, shape=shape)


def multiples(random, dtype, shape):
    """Returns what pco finds a mode of its own for: multiples of a number, which grow."""
    steps = np.cumsum(random.integers(0, 3, shape)).reshape(shape)
    factor = 0.1 if dtype.kind == "f" else 7
    return (steps * factor).astype(dtype)


def json2(random):
    filter = {
        "id": "json2",
        "indent": plain(random, [None, 2]),
        "separators": plain(random, [None, [",", ":"], [" , ", ": "]]),
        "ensure_ascii": plain(random, [True, False]),
        "sort_keys": plain(random, [True, False]),
    }
    return listed(random, filter, LISTED, few(random))


def msgpack2(random):
    kinds = [*LISTED, "S1", "S4", "V3"]
    filter = {"id": "msgpack2", "use_bin_type": True, "raw": plain(random, [False, True])}
    if filter["raw"]:
        # Bytes become text again only where they are ASCII.
        kinds = [kind for kind in kinds if "U" not in kind]
    if random.random() < 0.2:
        kinds, filter["use_single_float"] = ["f2", "f4"], True
    if random.random() < 0.2:
        kinds, filter["use_bin_type"] = LISTED[:10], False
    # numcodecs cannot write a list of no dimensions.
    return listed(random, filter, kinds, few(random, 1))


def listed(random, filter, kinds, shape):
    dtype = a_dtype(random, kinds)
    before = []
    if dtype.kind in "iu" and random.random() < 0.3:
        before = [{"id": "delta", "dtype": dtype.str}]
    return elements(random, dtype, shape), [*before, filter], a_compressor(random)


def categorize(random):
    dtype = a_dtype(random, ["U1", "U3"])
    array = words(random, dtype, few(random), ["a", "b", "\u4e2d", "\U0001f600"])
    known = np.unique(array)
    # Some text has no label, and some labels are no text of the chunk.
    labels = [str(word) for word in known if random.random() < 0.8]
    labels += ["c", "\u00e9", "c"][: random.integers(0, 4)]
    astype = a_dtype(random, INTEGERS).str
    filter = {"id": "categorize", "labels": labels, "dtype": dtype.str, "astype": astype}
    after = [{"id": "delta", "dtype": astype}] if random.random() < 0.3 else []
    return array, [filter, *after], a_compressor(random)


MAKERS = {
    "categorize": categorize,
    "json2": json2,
    "msgpack2": msgpack2,
    "pcodec": pcodec,
}
