"""The daemon's peak memory against its budget, under one reader in order and several at random."""

import subprocess

import arrays
import peers
import table

# Room for one row of the largest chunks, not for the whole array.
BUDGET = 192
SLACK = 64
READERS = 4
READS = 2_000


def run(arguments):
    rows = []
    for case in arrays.chosen(arguments):
        store = arrays.store(case, arguments.size)
        with peers.Ours(store, "--memory", f"{BUDGET}M") as mount:
            mount.read("whole")
            crowd(mount.npy)
            peak = mount.peak_bytes() / table.MIB
            held = mount.stats().get("memory_peak_bytes", 0) / table.MIB
        what = f"peak; by its own count {held:.0f}"
        rows.append(table.limit(case.name, what, peak, "MiB", BUDGET + SLACK))
    return rows


def crowd(path):
    """Lets several readers loose on a file whose pages were dropped."""
    peers.read_file("forget", path)
    command = [str(peers.EXAMPLES / "read_file"), "random", str(path), str(READS)]
    readers = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.DEVNULL)
        for seed in range(READERS)
    ]
    for reader in readers:
        if reader.wait() != 0:
            raise SystemExit(f"a reader of {path} failed")
