"""Each codec of numcodecs, both ways: chunks that numcodecs wrote are read here, and the other way round."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs as v3

import layout
import mounting
from numcodecs_cases import MAKERS, cases
from serializer_cases import CODED

COUNT = 200

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


def same(found, expected):
    """Says whether two arrays are equal bit for bit; one NaN is as good as another."""
    if expected.dtype.kind not in "fc":
        return found.tobytes() == expected.tobytes()
    real = expected.real.dtype
    found, expected = (np.ascontiguousarray(a).reshape(-1).view(real) for a in (found, expected))
    bits = np.dtype(f"u{real.itemsize}")
    equal = found.view(bits) == expected.view(bits)
    return bool(np.all(equal | (np.isnan(found) & np.isnan(expected))))


def little(array):
    """Returns an array in the order in which decoded files hold it."""
    array = np.asarray(array, order="C")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def test_chunks_of_numcodecs_are_read(tmp_path, mounted):
    store = tmp_path / "made.zarr"
    store.mkdir()
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    expected = {}
    for name in MAKERS:
        for case in cases(name, COUNT):
            folder = store / case.name
            folder.mkdir()
            (folder / ".zarray").write_text(case.document())
            chunk = case.encoded()
            (folder / case.key()).write_bytes(chunk)
            expected[case.name] = case, little(case.decoded(chunk))
    files = mounted(store).files
    wrong = []
    for name, (case, array) in expected.items():
        try:
            raw = layout.decoded(files, store, name, "raw").read_bytes()
        except OSError as error:
            wrong.append(f"{error}: {case.document()}")
            continue
        found = np.frombuffer(raw, array.dtype)
        if found.size != array.size or not same(found, array.reshape(-1)):
            wrong.append(case.document())
    assert not wrong, f"{len(wrong)} of {len(expected)}:\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize("name", MAKERS)
def test_numcodecs_reads_what_is_encoded(tmp_path, name):
    program = Path(mounting.program()).parent / "examples" / "encode_chunks"
    assert program.is_file(), f"{program} is absent: run `cargo build --example encode_chunks`"
    made = cases(name, COUNT)
    for case in made:
        folder = tmp_path / case.name
        folder.mkdir()
        (folder / ".zarray").write_text(case.document())
        (folder / "decoded").write_bytes(little(case.array).tobytes())
    done = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wrong = []
    for case in made:
        expected = little(case.decoded(case.encoded()))
        chunk = (tmp_path / case.name / case.key()).read_bytes()
        if not same(little(case.decoded(chunk)), expected):
            wrong.append(case.document())
    assert not wrong, f"{len(wrong)} of {len(made)}:\n" + "\n".join(wrong[:10])


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
