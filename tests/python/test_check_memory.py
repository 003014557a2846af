"""The memory of `zarrfs check --data`: its budget and 64 MiB, also where one chunk takes most of it."""

import shutil
import subprocess
import time

import numpy as np
import zarr

import mounting

MIB = 1 << 20
BUDGET = 160 * MIB


def check(store, *options):
    """Checks the data of a store; returns the exit status, what was printed and the most memory that was held, in bytes."""
    command = [mounting.program(), "check", "--data", "--memory", str(BUDGET), *options, str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, held(process.pid))
        time.sleep(0.01)
    return process.returncode, process.stdout.read(), peak


def held(process):
    """Returns the most memory that a process has held, in bytes; what it was forked from does not count."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as status:
            lines = [line for line in status if line.startswith("VmHWM")]
    except OSError:
        return 0
    return int(lines[0].split()[1]) * 1024 if lines else 0


def make(store, chunk, codec, row, shard=None):
    """Makes an array of four chunks, or shards, of the same elements: one is encoded, and copied."""
    size = shard or chunk
    array = zarr.create_array(
        store, shape=(4 * size,), chunks=(chunk,), shards=shard and (shard,), dtype="uint8", compressors=[codec]
    )
    array[:size] = row
    for place in range(1, 4):
        shutil.copyfile(store / "c/0", store / f"c/{place}")
    return store


def noise(size):
    row = np.random.default_rng(1).integers(0, 200, size, dtype="uint8")
    row[::2] = 0
    return row


def test_large_chunks_stay_within_the_budget(tmp_path):
    for name, codec in (("zstd", zarr.codecs.ZstdCodec(level=1)), ("blosc", zarr.codecs.BloscCodec(clevel=1))):
        store = make(tmp_path / name, 60 * MIB, codec, noise(60 * MIB))
        status, text, peak = check(store)
        assert (status, "4 chunks decoded" in text) == (0, True), text
        assert peak < BUDGET + 64 * MIB, (name, peak / MIB)


def test_large_shards_stay_within_the_budget(tmp_path):
    store = make(tmp_path / "s", 10 * MIB, zarr.codecs.ZstdCodec(level=1), noise(40 * MIB), 40 * MIB)
    status, text, peak = check(store)
    assert status == 0, text
    assert peak < BUDGET + 64 * MIB, peak / MIB


def test_a_chunk_larger_than_the_budget_is_reported_and_not_read(tmp_path):
    store = make(tmp_path / "c", 200 * MIB, zarr.codecs.ZstdCodec(level=1), 1)
    status, text, peak = check(store)
    assert status == 0 and "warning: /: all 4 chunks, such as c/0: zarrfs cannot decode the chunk" in text, text
    assert "give more --memory" in text and peak < BUDGET + 64 * MIB, (text, peak / MIB)
