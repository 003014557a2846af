"""Each codec of numcodecs, both ways: chunks that numcodecs wrote are read here, and the other way round."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import layout
import mounting
from numcodecs_cases import MAKERS, cases

COUNT = 200


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
        raw = layout.decoded(files, store, name, "raw").read_bytes()
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
