"""Each codec of numcodecs, both ways: chunks that numcodecs wrote are read here, and the other way round."""

import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs as v3

import layout
from both_ways import little, report, wrongly_encoded, wrongly_read
from numcodecs_cases import MAKERS, cases
from serializer_cases import CODED

COUNT = 60

# Codecs of zarr-python 3 by the data type they get: those between arrays, and those between bytes.
FILTERS = {
    "astype": ("f8", lambda: v3.AsType(encode_dtype="float32", decode_dtype="float64")),
    "bitround": ("f4", lambda: v3.BitRound(keepbits=7)),
    "delta": ("i4", lambda: v3.Delta(dtype="int32")),
    "delta-narrower": ("i4", lambda: v3.Delta(dtype="<i4", astype="<i2")),
    "fixedscaleoffset": (
        "f8",
        lambda: v3.FixedScaleOffset(offset=1, scale=10, dtype="<f8", astype="<i4"),
    ),
    "packbits": ("b1", lambda: v3.PackBits()),
    "quantize": ("f4", lambda: v3.Quantize(digits=2, dtype="float32")),
}
COMPRESSORS = {
    "adler32": lambda: v3.Adler32(),
    "blosc": lambda: v3.Blosc(cname="zstd", shuffle=2),
    "bz2": lambda: v3.BZ2(),
    "crc32": lambda: v3.CRC32(location="end"),
    "crc32c": lambda: v3.CRC32C(),
    "fletcher32": lambda: v3.Fletcher32(),
    "gzip": lambda: v3.GZip(),
    "jenkins_lookup3": lambda: v3.JenkinsLookup3(initval=7),
    "lz4": lambda: v3.LZ4(),
    "lzma": lambda: v3.LZMA(preset=1),
    "shuffle": lambda: v3.Shuffle(),
    "zlib": lambda: v3.Zlib(),
    "zstd": lambda: v3.Zstd(level=3),
}


def test_chunks_of_numcodecs_are_read(tmp_path, mounted):
    made = [case for name in MAKERS for case in cases(name, COUNT)]
    wrong = wrongly_read(tmp_path / "made.zarr", made, mounted)
    assert not wrong, report(wrong)


@pytest.mark.parametrize("name", MAKERS)
def test_numcodecs_reads_what_is_encoded(tmp_path, name):
    wrong = wrongly_encoded(tmp_path, cases(name, COUNT))
    assert not wrong, report(wrong)


def test_arrays_of_v3_with_codecs_of_numcodecs_are_read(tmp_path, mounted):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store, zarr_format=3)
    random = np.random.default_rng(3)
    expected = {}
    chosen = [(name, kind, [codec()], None) for name, (kind, codec) in FILTERS.items()]
    for name, codec in COMPRESSORS.items():
        chosen += [(f"{name}-{kind}", kind, None, [codec()]) for kind in ("i4", "f8", "u1")]
    chosen += [(f"pcodec-{kind}", kind, None, None) for kind in CODED]
    for name, kind, filters, compressors in chosen:
        dtype = np.dtype(kind)
        serializer = v3.PCodec(level=5) if name.startswith("pcodec") else "auto"
        array = root.create_array(
            name,
            shape=(11, 13),
            chunks=(4, 5),
            dtype=dtype,
            filters=filters,
            serializer=serializer,
            compressors=compressors,
            fill_value=0,
        )
        array[...] = (random.random((11, 13)) * 100).astype(dtype)
        expected[name] = array[...]
    files = mounted(store).files
    for name, array in expected.items():
        raw = layout.decoded(files, store, name, "raw").read_bytes()
        assert raw == little(array).tobytes(), name
