"""Whole arrays read through the plain views: a sharded array by a reader of v2 only.

Warm reads are compared with the same array stored plain, and cold reads with zarr-python 3 on the original.

A cold read has its chunks on the disk and a new mount. A warm read is the second one of a mount. Each read has its own
process, and the time of imports does not count.
"""

import os
import subprocess
import sys

from zarr.codecs import ZstdCodec

import arrays
import host_memory
import mounting
import peers
import remote_peers
import table

# zarr-python 2 and zarr-python 3, by the view that each reads.
READERS = {"v2": mounting.ROOT / ".venv2" / "bin" / "python", "v3": sys.executable}

# The reader opens a file for each inner chunk: many small ones cost names, a few large ones cost bytes.
SHARDED = [
    arrays.case("sharded-zstd-8M-16K"),
    arrays.Case(
        "sharded-zstd-8M-1M",
        dict(shards=(128, 128, 128), chunks=(64, 64, 64), compressors=ZstdCodec(level=1)),
        None,
        None,
    ),
]
IN_V2 = arrays.case("zstd-1M")

# Of the speed of the array stored plain, and of the original's.
WARM, COLD = 0.8, 1.0


def run(arguments):
    if not READERS["v2"].exists():
        raise SystemExit(f"{READERS['v2']} is missing: scripts/setup python makes it")
    rows = []
    for case in SHARDED:
        if arguments.only in case.name:
            store = arrays.store(case, arguments.size)
            rows += measure_warm(case, store, arguments)
            rows += measure_cold("  ", store, ("v2", "v3"), arguments)
    if arguments.only in IN_V2.name:
        store = arrays.in_v2(IN_V2, arguments.size)
        rows += measure_cold(f"{IN_V2.name} of v2, ", store, ("v3",), arguments)
    return rows


def measure_warm(case, store, arguments):
    """Returns the rows of warm reads, over the v2 view and from a store with the files of that view."""
    plain = as_shown(case, arguments.size)
    arrays.warm_up(store)
    arrays.warm_up(plain)
    turns = {
        "ours": lambda: second_read(store, "--view", "v2"),
        "plain": lambda: second_read(plain),
    }
    if arguments.before:
        turns["before"] = lambda: older(arguments, turns["ours"])
    done = taken(turns, arguments)
    name = f"{case.name}, v2 view, warm"
    return [
        table.speeds(name, "stored plain, store view", done["ours"], done["plain"], WARM),
        *table.since(done["ours"], done.get("before")),
    ]


def measure_cold(name, store, views, arguments):
    """Returns the rows of an array that is read once, over the views and directly."""
    turns = {"direct": lambda: read(READERS["v3"], store)}
    for view in views:
        turns[view] = lambda view=view: first_read(store, view)
        if arguments.before:
            turns[view, "before"] = lambda view=view: older(arguments, turns[view])
    done = taken(turns, arguments, lambda: forget(store))
    rows = []
    for view in views:
        case = f"{name}{view} view, cold"
        rows.append(table.speeds(case, "zarr-python 3, directly", done[view], done["direct"], COLD))
        rows += table.since(done[view], done.get((view, "before")))
    return rows


def taken(turns, arguments, prepare=lambda: None):
    """Returns the reads of all turns. Every other round goes backwards: a read behind another's finds colder caches."""
    done = {name: [] for name in turns}
    for number in range(arguments.rounds):
        for name in list(turns)[:: -1 if number % 2 else 1]:
            host_memory.touch(arguments.size * table.MIB)
            prepare()
            done[name].append(turns[name]())
    return done


def as_shown(case, size):
    """Returns the store of an array as the v2 view shows it: a file for each inner chunk, not compressed."""
    options = {"zarr_format": 2, "compressors": None, "chunks": case.options["chunks"]}
    return arrays.store(case._replace(name=f"{case.name}-plain", options=options), size)


def older(arguments, turn):
    """Returns the same read by an older build."""
    with peers.built(arguments.before):
        return turn()


def first_read(store, view):
    """Returns the first read of a mount, by the reader that has the view's version."""
    with mounting.Daemon(store, "--view", view) as mount:
        return read(READERS[view], mount.path)


def second_read(store, *options):
    """Returns the second read of a mount by the reader of v2, out of the kernel's pages."""
    with mounting.Daemon(store, *options) as mount:
        read(READERS["v2"], mount.path)
        return read(READERS["v2"], mount.path)


def read(python, folder):
    """Reads the array with an interpreter's zarr."""
    command = [python, remote_peers.DIRECT, "zarr", folder]
    out = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    return peers.parsed(out.stdout)


def forget(store):
    """Drops what the page cache has of the stored chunks."""
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
