"""Compares chunks with numcodecs in both directions; shared by the tests of its codecs.

Of floats one NaN is as good as another, everything else has to be equal bit for bit. `encode_chunks` is what is
built beside the program: `cargo build --example encode_chunks`.
"""

import subprocess
from pathlib import Path

import numpy as np

import layout
import mounting


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


def wrongly_read(store, made, mounted):
    """Writes chunks that numcodecs encodes into a new store; returns those that a mount of it reads otherwise."""
    store.mkdir()
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    expected = {}
    for case in made:
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
    return wrong


def wrongly_encoded(folder, made):
    """Has chunks encoded here; returns those that numcodecs reads otherwise than its own."""
    program = Path(mounting.program()).parent / "examples" / "encode_chunks"
    assert program.is_file(), f"{program} is absent: run `cargo build --example encode_chunks`"
    for case in made:
        array = folder / case.name
        array.mkdir()
        (array / ".zarray").write_text(case.document())
        (array / "decoded").write_bytes(little(case.array).tobytes())
    done = subprocess.run([program, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wrong = []
    for case in made:
        expected = little(case.decoded(case.encoded()))
        chunk = (folder / case.name / case.key()).read_bytes()
        if not same(little(case.decoded(chunk)), expected):
            wrong.append(case.document())
    return wrong


def report(wrong):
    """Returns the first of what is wrong as text."""
    return f"{len(wrong)} are wrong:\n" + "\n".join(wrong[:10])
