"""Programs that read and write one array at once through a mount, beside commits.

Under scripts/stress there are more reads and rounds.
"""

import errno
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

import mounting
from concurrent_writers import CHUNK
from mounting import zarrfs

IS_STRESS = "ZARRFS_STRESS_SECONDS" in os.environ
# Of each of four kinds.
READS = 5000 if IS_STRESS else 500
# So many more where the writer is slow.
MOST_READS = 20 * READS
ROUNDS = 20 if IS_STRESS else 2
CHUNKS = 16
ROWS = 64
PROCESSES = 4
# Chunks are theirs by turns.
ZARR_PROCESSES = 2
WRITERS = Path(__file__).with_name("concurrent_writers.py")
# How long files are written by maps and by pwrite.
MAP_SECONDS = 60 if IS_STRESS else 3
# How long all ways of writing are tried at once.
ALL_SECONDS = 600 if IS_STRESS else 5
# So many reads are between two commits.
COMMIT_EVERY = 100
# How often somebody opens a decoded file again that was replaced while it was read.
REOPENS = 50


@pytest.fixture
def store(tmp_path):
    """Makes a store with an array of ones, of which every chunk is stored; the fill value is 0."""
    path = tmp_path / "some.zarr"
    root = zarr.create_group(path, zarr_format=3)
    options = {"chunks": (CHUNK,), "fill_value": 0, "compressors": None}
    root.create_array("a", data=np.ones(CHUNKS * CHUNK, "i8"), **options)
    options = {"chunks": (8, 16), "fill_value": 0}
    root.create_array("b", shape=(ROWS, 32), dtype="i8", **options)
    return path


@pytest.fixture
def cow(mounted, store, tmp_path):
    """Mounts the store with an upper folder."""
    return lambda *options: mounted(store, "--cow", tmp_path / "upper", *options)


def start(*words):
    return subprocess.Popen([sys.executable, WRITERS, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def writing(array, end):
    """Has processes write to an array, each to chunks of its own; none must fail."""
    processes = [start("zarr", array, end, part, ZARR_PROCESSES) for part in range(ZARR_PROCESSES)]
    try:
        yield
        for process in processes:
            assert process.poll() is None, process.stderr.read().decode()
    finally:
        end.touch()
        said = [process.communicate(timeout=60)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0] * ZARR_PROCESSES, "\n".join(said)


def read_chunk(array, chunk):
    """Reads a chunk with zarr-python, from an array that is opened for it."""
    return zarr.open_array(array, mode="r")[chunk * CHUNK : (chunk + 1) * CHUNK]


def read_decoded(path, chunk):
    """Reads a chunk of the decoded file in one call and within one page, since what is written shows between two of
    them. The file is opened again when it was replaced meanwhile."""
    for _ in range(REOPENS):
        try:
            return np.frombuffer(read_once(path, chunk), "i8")
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return None


def read_once(path, chunk):
    size = CHUNK * 8
    with open(path, "rb", buffering=0) as file:
        return os.pread(file.fileno(), size, chunk * size)


@pytest.mark.parametrize("view", ["store", "files"])
@pytest.mark.parametrize("option", [[], ["--write-through"]], ids=["cow", "through"])
def test_concurrent_reads_see_only_written_chunks_and_never_older_ones(cow, tmp_path, view, option):
    """Each chunk that is read was written by the writer, and is no older than the one read before."""
    mount = cow(*option)
    decoded = mount.files / "a" / "a.raw"
    draw = random.Random(1)
    newest = [1] * CHUNKS
    wrong = []
    unread = 0
    with writing(mount.path / "a", tmp_path / "end"):
        for number in range(MOST_READS):
            if number >= READS and max(newest) > 2 * CHUNKS:
                break
            chunk = draw.randrange(CHUNKS)
            found = read_decoded(decoded, chunk) if view == "files" else read_chunk(mount.path / "a", chunk)
            if found is None:
                unread += 1
                continue
            values = set(found.tolist())
            if len(values) != 1 or min(values) < newest[chunk]:
                wrong.append((number, chunk, newest[chunk], sorted(values)))
            newest[chunk] = max(newest[chunk], *values)
            if number % COMMIT_EVERY == 0:
                zarrfs("commit", mount.path)
    assert not wrong, f"{len(wrong)} of {READS} reads are wrong, such as {wrong[:3]}"
    assert max(newest) > 2 * CHUNKS, "next to nothing was written meanwhile"
    assert unread < number / 2
    zarrfs("commit", mount.path)
    shown = zarr.open_array(mount.path / "a", mode="r")[...]
    np.testing.assert_array_equal(zarr.open_array(mount.store / "a", mode="r")[...], shown)


def test_tensorstore_writes_from_several_processes(cow):
    """Every chunk is written by all processes."""
    mount = cow()
    expected = np.repeat(np.arange(1, ROWS + 1)[:, None], 32, axis=1)
    for _ in range(ROUNDS):
        zarr.open_array(mount.path / "b", mode="r+")[...] = 0
        processes = [start("tensorstore", f"{mount.path}/b/", part, PROCESSES) for part in range(PROCESSES)]
        zarrfs("commit", mount.path)
        said = [process.communicate(timeout=300)[1].decode() for process in processes]
        assert [process.returncode for process in processes] == [0] * PROCESSES, "\n".join(said)
        np.testing.assert_array_equal(zarr.open_array(mount.path / "b", mode="r")[...], expected)
        zarrfs("commit", mount.path)
        np.testing.assert_array_equal(zarr.open_array(mount.store / "b", mode="r")[...], expected)
    names = {path.name for path in (mount.store / "b" / "c").rglob("*")}
    assert names <= set(map(str, range(ROWS))), "temporary names or locks are left"


def write_both_ways(path, skip):
    """Has two processes write a file by pwrite and two by maps, each its own numbers of every page. None must find a
    number of its own changed; returns how many they have written."""
    kinds = ["pwrite", "map", "pwrite", "map"]
    processes = [start(kind, path, skip, 1024, MAP_SECONDS, part, len(kinds)) for part, kind in enumerate(kinds)]
    return sum(written_by(processes, MAP_SECONDS))


def written_by(processes, seconds):
    """Waits for processes; none must have found something else than it had written. Returns how much each has written."""
    said = [process.communicate(timeout=seconds + 120) for process in processes]
    lost = [error.decode() for _, error in said if error]
    assert not lost and not any(process.returncode for process in processes), "".join(lost)
    return [int(out) for out, _ in said]


@pytest.mark.parametrize("file", ["key", "decoded"])
@pytest.mark.parametrize("option", [[], ["--write-through"]], ids=["cow", "through"])
def test_mmap_and_pwrite_on_one_file_lose_no_writes(tmp_path, mounted, file, option):
    """The kernel's pages of a file are kept while a program writes it: otherwise mmap would write back older bytes."""
    root = zarr.create_group(tmp_path / "some.zarr", zarr_format=3)
    root.create_array("a", data=np.zeros(1024, "i8"), compressors=None, config={"write_empty_chunks": True})
    mount = mounted(tmp_path / "some.zarr", "--cow", tmp_path / "upper", *option)
    path, skip = {"key": (mount.path / "a/c/0", 0), "decoded": (mount.files / "a/a.npy", 128)}[file]
    assert write_both_ways(path, skip) > 40


def test_all_kinds_of_writers_run_concurrently(tmp_path, mounted):
    """Programs write elements through `.npy`, `.raw` and keys, with pwrite, mmap and temporary files, and attributes,
    beside commits and discards: each program reads back its own writes, and no commit conflicts."""
    root = zarr.create_group(tmp_path / "some.zarr", zarr_format=3)
    options = {"chunks": (CHUNK,), "compressors": None}
    root.create_array("a", data=np.zeros(CHUNKS * CHUNK, "i8"), config={"write_empty_chunks": True}, **options)
    root.create_array("b", data=np.ones(CHUNK, "i8"), **options)
    mount = mounted(tmp_path / "some.zarr", "--cow", tmp_path / "upper")
    array, half = mount.files / "a", CHUNKS * CHUNK // 2
    parts = ["pwrite", "map", "pwrite", "map"]
    files = [(array / "a.npy", 128), (array / "a.npy", 128), (array / "a.raw", 0), (array / "a.raw", 0)]
    processes = [
        *(start(kind, *file, half, ALL_SECONDS, part, 4) for part, (kind, file) in enumerate(zip(parts, files))),
        *(start("keys", mount.path / "a/c", CHUNKS // 2, ALL_SECONDS, part, 2) for part in range(2)),
        start("attributes", array / "attributes.json", ALL_SECONDS, 0),
    ]
    commits = 0
    while any(process.poll() is None for process in processes):
        zarrfs("commit", mount.path)
        (mount.path / "b/c/0").write_bytes(bytes(8 * CHUNK))
        zarrfs("discard", mount.path, "b")
        assert zarr.open_array(mount.path / "b", mode="r")[0] == 1
        commits += 1
    written = written_by(processes, 0)
    assert min(written) > 3 and commits > 3, (written, commits)
    zarrfs("commit", mount.path)
    shown, stored = (zarr.open_array(place / "a", mode="r") for place in (mount.path, mount.store))
    np.testing.assert_array_equal(stored[...], shown[...])
    assert dict(stored.attrs) == dict(shown.attrs) == {"count0": written[-1]}
    print(f"{commits} commits beside {written} writes")
