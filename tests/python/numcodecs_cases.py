"""Random chunks of v2 for each codec of numcodecs: how they are configured, and what they decode to.

`Case` holds one chunk; `cases(name, count)` makes them. What numcodecs decodes is taken to be right.
"""

import json
from dataclasses import dataclass

import numcodecs
import numpy as np

import serializer_cases
from random_values import (
    ALL,
    FLOATS,
    INTEGERS,
    a_compressor,
    a_dtype,
    a_shape,
    an_array,
    plain,
    small,
)

# Codecs that write down the shape.
SHAPED = {"json2", "msgpack2"}

XZ, ALONE, RAW = 1, 2, 3
LZMA1, LZMA2, DELTA, X86 = 0x4000000000000001, 0x21, 3, 4


@dataclass
class Case:
    """One chunk: the array, and the configurations of its filters and its compressor."""

    name: str
    array: np.ndarray
    filters: list
    compressor: dict | None

    @property
    def order(self):
        return "C" if self.array.flags.c_contiguous else "F"

    def document(self):
        """Returns what `.zarray` holds."""
        return json.dumps(
            {
                "zarr_format": 2,
                "shape": self.array.shape,
                "chunks": self.array.shape,
                "dtype": self.array.dtype.str,
                "order": self.order,
                "fill_value": 0 if self.array.dtype.kind in "biufc" else None,
                "filters": self.filters or None,
                "compressor": self.compressor,
            }
        )

    def codecs(self):
        """Returns numcodecs' codecs in the order of encoding."""
        both = [*self.filters, *([self.compressor] if self.compressor else [])]
        return [numcodecs.get_codec(configuration) for configuration in both]

    def key(self):
        """Returns the name of the only chunk."""
        return ".".join("0" * self.array.ndim) or "0"

    def encoded(self):
        """Returns the chunk as numcodecs encodes it."""
        chunk = self.array
        for codec in self.codecs():
            chunk = codec.encode(chunk)
        return numcodecs.compat.ensure_bytes(chunk)

    def decoded(self, chunk):
        """Returns the array that numcodecs decodes from a chunk."""
        for codec in reversed(self.codecs()):
            chunk = codec.decode(chunk)
        found = numcodecs.compat.ensure_ndarray(chunk)
        if self.filters and self.filters[0]["id"] in SHAPED:
            # Such a list is an array of the chunk's shape, whatever its order was.
            return found.view(self.array.dtype)
        flat = found.view(self.array.dtype).reshape(-1, order="A")
        return flat.reshape(self.array.shape, order=self.order)


def cases(name, count):
    """Returns `count` chunks that the codec `name` is part of."""
    random = np.random.default_rng(sum(name.encode()))
    made = []
    for n in range(count):
        array, filters, compressor = MAKERS[name](random)
        # numcodecs' bitround turns order F into C and does not say so.
        if random.random() < 0.3 and name != "bitround":
            array = np.asfortranarray(array)
        made.append(Case(f"{name}-{n}", array, filters, compressor))
    return made


def compressing(identifier, **options):
    """Returns a maker of arrays of any type with a compressor; options are lists to choose from."""

    def make(random):
        dtype = a_dtype(random, ALL)
        chosen = {name: plain(random, values) for name, values in options.items()}
        return an_array(random, dtype), [], {"id": identifier, **chosen}

    return make


def filtering(identifier, **options):
    """Returns the same as a filter, behind which a compressor may stand."""

    def make(random):
        array, _, filter = compressing(identifier, **options)(random)
        return array, [filter], a_compressor(random)

    return make


def lzma(random):
    delta = {"id": DELTA, "dist": int(random.integers(1, 20))}
    lzma1 = {"id": LZMA1, "preset": 1, "lc": 1, "lp": 2, "pb": 0}
    lzma2 = {"id": LZMA2, "preset": int(random.integers(0, 4)), "dict_size": 1 << 16}
    x86 = {"id": X86, "start_offset": 0}
    options = plain(
        random,
        [
            {"format": XZ, "check": plain(random, [-1, 0, 1, 4, 10]), "preset": 1},
            {"format": XZ, "preset": None, "filters": None},
            {"format": ALONE, "preset": 2},
            {"format": RAW, "filters": [{"id": LZMA2, "preset": 1}]},
            {"format": RAW, "filters": [delta, lzma2]},
            {"format": RAW, "filters": [x86, delta, lzma2]},
            {"format": RAW, "filters": [lzma1]},
        ],
    )
    return an_array(random, a_dtype(random, ALL)), [], {"id": "lzma", **options}


def delta(random):
    dtype = a_dtype(random, [*INTEGERS, *FLOATS, "b1", "c8", "c16"])
    filter = {"id": "delta", "dtype": dtype.str}
    array = an_array(random, dtype)
    if dtype.kind == "f":
        array = small(random, dtype)
    choice = random.random()
    if choice < 0.3 and dtype.kind in "iu" and dtype.itemsize > 1:
        # Narrower, and small enough to be.
        array = small(random, np.dtype(dtype.str.replace("u", "i")), 60).astype(dtype)
        filter["dtype"] = array.dtype.str.replace("u", "i")
        filter["astype"] = a_dtype(random, ["i1", "i2"]).str
        array = array.astype(filter["dtype"])
    elif choice < 0.5 and dtype.kind in "iu" and dtype.itemsize < 8:
        filter["astype"] = a_dtype(random, ["i8"]).str
    elif choice < 0.6:
        # The chunk is taken for something else than it is.
        array = an_array(random, a_dtype(random, ["u1", "i2", "u4"]), a_shape(random, 4))
        if not array.dtype.isnative or array.ndim > 1:
            array = array.reshape(-1)
        filter = {"id": "delta", "dtype": a_dtype(random, ["u1", "i2", "u4"]).str}
    return array, [filter], a_compressor(random)


def astype(random):
    pairs = "i1 i4,i2 i8,i4 f8,u1 f4,u2 i8,b1 i2,f4 f8,f2 f4,f8 f4,f8 f2,i8 f2,f8 i4,f4 u1,c8 c16,u8 i2"
    encoded, decoded = plain(random, pairs.split(",")).split()
    if random.random() < 0.4:
        encoded, decoded = decoded, encoded
    dtype = a_dtype(random, [decoded])
    filter = {
        "id": "astype",
        "encode_dtype": a_dtype(random, [encoded]).str,
        "decode_dtype": dtype.str,
    }
    exact = dtype.kind in "iu" and np.dtype(encoded).kind in "iu"
    array = an_array(random, dtype) if exact else small(random, dtype)
    return array, [filter], a_compressor(random)


def fixedscaleoffset(random):
    dtype = a_dtype(random, [*FLOATS, "i2", "i4", "u1", "u4"])
    filter = {
        "id": "fixedscaleoffset",
        "offset": plain(random, [0, 5, 5.5, 1]),
        "scale": plain(random, [1, 2, 10, 0.5, 3.7, 1.0]),
        "dtype": dtype.str,
    }
    if random.random() < 0.7:
        filter["astype"] = a_dtype(random, ["i2", "i4", "f4", "f8", "i8"]).str
    array = small(random, dtype, 100) + np.asarray(5, dtype)
    return np.asarray(array, dtype), [filter], a_compressor(random)


def quantize(random):
    dtype = a_dtype(random, FLOATS)
    filter = {"id": "quantize", "digits": int(random.integers(-1, 6)), "dtype": dtype.str}
    if random.random() < 0.5:
        filter["astype"] = a_dtype(random, FLOATS).str
    # One element without dimensions loses its byte order in numcodecs.
    shape = a_shape(random) or (1,)
    return small(random, dtype, shape=shape), [filter], a_compressor(random)


def bitround(random):
    kind = plain(random, FLOATS)
    most = {"f2": 10, "f4": 23, "f8": 52}[kind]
    filter = {"id": "bitround", "keepbits": int(random.integers(0, most + 1))}
    return small(random, np.dtype(kind), 1000), [filter], a_compressor(random)


def packbits(random):
    return an_array(random, np.dtype("b1")), [{"id": "packbits"}], a_compressor(random)


def shuffle(random):
    dtype = a_dtype(random, ALL)
    size = plain(random, [dtype.itemsize, dtype.itemsize, 1, 4, 8])
    array = an_array(random, dtype, a_shape(random, 8))
    return array, [{"id": "shuffle", "elementsize": size}], a_compressor(random)


def chain(random):
    """Filters of all kinds one after the other, array filters after bytes among them."""
    little = np.dtype("<" + plain(random, ["u1", "i2", "i4", "u4"]))
    numbers = {"id": "delta", "dtype": little.str}
    octets = {"id": "delta", "dtype": "|u1"}
    filters = plain(
        random,
        [
            [numbers, {"id": "shuffle", "elementsize": little.itemsize}],
            [{"id": "base64"}, octets],
            [{"id": "crc32"}, octets, {"id": "adler32", "location": "end"}],
            [numbers, {"id": "shuffle", "elementsize": 2}, octets],
            [{"id": "zlib", "level": 1}, octets, {"id": "fletcher32"}],
            [numbers, {"id": "astype", "encode_dtype": ">i8", "decode_dtype": little.str}],
            [
                {"id": "astype", "encode_dtype": ">i8", "decode_dtype": little.str},
                {"id": "delta", "dtype": "<i8"},
                {"id": "delta", "dtype": ">u4"},
            ],
            [{"id": "jenkins_lookup3"}, {"id": "base64"}, {"id": "crc32c"}],
            [octets, numbers],
        ],
    )
    array = an_array(random, little, a_shape(random, 4)).reshape(-1)
    return array, filters, plain(random, [None, {"id": "lz4"}, {"id": "crc32"}, octets])


LOCATIONS = {"location": ["start", "end", "end"]}

MAKERS = {
    "adler32": filtering("adler32", **LOCATIONS),
    "astype": astype,
    "base64": filtering("base64"),
    "bitround": bitround,
    "blosc": compressing(
        "blosc",
        cname=["lz4", "lz4hc", "blosclz", "zstd", "zlib"],
        clevel=[0, 1, 5, 9],
        shuffle=[-1, 0, 1, 2],
        blocksize=[0, 256],
    ),
    "bz2": compressing("bz2", level=[1, 5, 9]),
    "chain": chain,
    "crc32": filtering("crc32", **LOCATIONS),
    "crc32c": filtering("crc32c", **LOCATIONS),
    "delta": delta,
    "fixedscaleoffset": fixedscaleoffset,
    "fletcher32": filtering("fletcher32"),
    "gzip": compressing("gzip", level=[0, 1, 6, 9]),
    "jenkins_lookup3": filtering("jenkins_lookup3", initval=[0, 1, 2**32 - 1]),
    "lz4": compressing("lz4", acceleration=[0, 1, 10]),
    "lzma": lzma,
    "packbits": packbits,
    "quantize": quantize,
    "shuffle": shuffle,
    "zlib": compressing("zlib", level=[0, 1, 6, 9]),
    "zstd": compressing("zstd", level=[-5, 0, 1, 12], checksum=[True, False]),
    **serializer_cases.MAKERS,
}
