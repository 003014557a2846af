"""Codec `zfpy` against numcodecs and zfpy, both ways, and the stores of the corpus that have it.

Run where zfpy is installed (1.0.1 is the release that numcodecs 0.16.6 takes) and `$ZARRFS`, with `encode_chunks`
beside it, was built with `--features zfp`; elsewhere these tests are skipped.
"""

import errno
from importlib.util import find_spec

import numcodecs
import numpy as np
import pytest

import corpus
import layout
from both_ways import little, report, wrongly_encoded, wrongly_read
from numcodecs_cases import Case
from random_values import a_compressor, a_shape, an_array, plain, small

pytestmark = pytest.mark.skipif(find_spec("zfpy") is None, reason="zfpy is not installed")

COUNT = 200


def a_case(random, number):
    """Returns a chunk with zfpy as filter or compressor; numcodecs takes order C alone, and no reversible mode."""
    dtype = np.dtype(plain(random, ["<i4", "<i8", "<f4", "<f8"]))
    spec = {"id": "zfpy", "tolerance": -1, "rate": -1, "precision": -1}
    spec |= plain(
        random,
        [
            {"mode": 4},
            {"mode": 4, "tolerance": plain(random, [0, 1e-6, 0.1, 30])},
            {"mode": 3, "precision": int(random.integers(1, 65))},
            {"mode": 2, "rate": float(random.integers(4, 100)) / 2},
        ],
    )
    # A negative tolerance is the reversible mode, which keeps all bits.
    reversible = spec["mode"] == 4 and spec["tolerance"] < 0
    array = (an_array if reversible else small)(random, dtype, shape=a_shape(random) or (1,))
    name = f"zfpy-{number}"
    if random.random() < 0.5:
        return Case(name, array, [], spec)
    return Case(name, array, [spec], a_compressor(random))


def made():
    return [a_case(np.random.default_rng([5, number]), number) for number in range(COUNT)]


@pytest.fixture(autouse=True)
def skip_without_the_feature(tmp_path, mounted):
    store = tmp_path / "probe.zarr"
    store.mkdir()
    spec = {"id": "zfpy", "mode": 4}
    (store / ".zarray").write_text(Case("probe", np.zeros(1), [], spec).document())
    try:
        (mounted(store).files / "probe.raw").read_bytes()
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP
        pytest.skip("the program was built without --features zfp")


def test_chunks_of_zfpy_are_read(tmp_path, mounted):
    wrong = wrongly_read(tmp_path / "made.zarr", made(), mounted)
    assert not wrong, report(wrong)


def test_zfpy_reads_what_is_encoded(tmp_path):
    folder = tmp_path / "encoded"
    folder.mkdir()
    wrong = wrongly_encoded(folder, made())
    assert not wrong, report(wrong)


@pytest.mark.parametrize(
    "store, keys",
    [
        ("v2/array_zfpy_C.zarr", "{}.{}"),
        ("v3/array_zfpy.zarr", "{}.{}"),
        ("v3_zarr_python/array_zfpy.zarr", "c/{}/{}"),
    ],
)
def test_stores_of_the_corpus_are_read(corpus_folder, mounted, store, keys):
    folder = corpus_folder / "zarrs-fixtures" / store
    codec = numcodecs.get_codec({"id": "zfpy"})
    rows = [[codec.decode((folder / keys.format(i, j)).read_bytes()) for j in (0, 1)] for i in (0, 1)]
    expected = np.block(rows)
    # What was written, but for the tolerance of these stores.
    assert np.abs(expected - np.arange(100, dtype="<f4").reshape(10, 10)).max() < 0.01
    found = np.load(layout.decoded(mounted(folder).files, folder, "/", "npy"))
    assert found.dtype == np.dtype("<f4")
    assert found.tobytes() == little(expected).tobytes()
