"""Stores of many arrays, long metadata files and many chunks: the cost of a mount, compared with the plain directory.

Each store is made in a temporary directory; --share gives a part of its size. Each command has its own mount, which
shows its peak of memory. The plain directory is read once before it is measured.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import mounting
import scale_archives
import scale_bucket
import scale_stores
import table

MIB = 1 << 20

# A name, and its shell command, with the directory as $0 and its longest directory as $1.
COMMANDS = {
    "ls -l": 'ls -l "$0/$1"',
    "ls -lR": 'ls -lR "$0"',
    "find": 'find "$0"',
    "find -size": 'find "$0" -size +0',
    "du": 'du -s "$0"',
}

# The commands for stores where each command takes minutes.
FEW_COMMANDS = ("ls -l", "find", "du")

# A store: how it is made at a share of its size, the mount's options, aims (MiB resident, and the ratio of `find` to the plain
# folder's), the commands, and the longest folder. What makes it returns the path of one of its arrays.
Case = namedtuple(
    "Case",
    "name make options most_resident most_find commands longest",
    defaults=[(), None, None, tuple(COMMANDS), "."],
)


def consolidated(make, array):
    """Returns what makes 20,000 arrays with consolidated metadata of 62 MB."""

    def made(store, share):
        make(store, scale_archives.counted(20_000, share), 3100)
        return array

    return made


def many_documents(store, share):
    """Makes 346 MB of metadata files."""
    scale_stores.documents(store, scale_archives.counted(1500, share), 230_000)
    return "group0/array0"


CASES = [
    Case("346 MB in 1,500 documents", many_documents, ("--memory", "64M"), 192),
    Case(
        "20,000 arrays, .zmetadata",
        consolidated(scale_stores.consolidated_v2, "group0/array0"),
        (),
        250,
        2,
    ),
    Case(
        "20,000 arrays, consolidated zarr.json",
        consolidated(scale_stores.consolidated_v3, "group0/array0"),
        (),
        250,
        2,
    ),
    Case(
        "ERA5-like, 1.3 million chunk files",
        scale_archives.era5,
        commands=FEW_COMMANDS,
        longest="variable0",
    ),
    Case("HCS plate, 384 wells", scale_archives.plate),
    Case("10^6 x 10^6, sharded", scale_archives.sharded),
    Case("10^9 chunks, 1,000 stored", scale_archives.sparse),
    Case("5 million strings", scale_archives.strings),
    Case(
        "1,000,000 arrays in a group",
        scale_archives.one_group,
        commands=FEW_COMMANDS,
        longest="group",
    ),
]

# Maximum bytes of memory per byte of a metadata file, and per name.
TIMES_DOCUMENT = 4
BYTES_A_NAME = 200

# MiB that a mount may keep after it has read a metadata file, and the time until it has returned the rest.
KEPT = 8
IDLE_SECONDS = 22


def run(arguments):
    rows = []
    for case in CASES:
        if arguments.only in case.name:
            make = lambda store, case=case: case.make(store, arguments.share)
            rows += with_store(make, lambda store, array, case=case: walks(case, store, array, arguments.rounds))
    for name, length in {"64 MiB": 64 * MIB, "93 MB": 93_000_000}.items():
        case = f"one document of {name}"
        if arguments.only in case:
            make = lambda store, length=length: scale_stores.long_attributes(store, int(length * arguments.share))
            rows += with_store(make, lambda store, _, case=case: documents(case, store))
    chunks = scale_archives.counted(300_000, arguments.share)
    case = f"{chunks} chunks in a folder"
    if arguments.only in case:
        rows += with_store(
            lambda store: scale_stores.flat_array(store, chunks),
            lambda store, _: flat(case, store, chunks),
        )
    keys = scale_archives.counted(1_000_000, arguments.share)
    case = f"a bucket of {keys} keys"
    if arguments.only in case:
        rows += many_keys(case, keys)
    return rows


def with_store(make, measure):
    """Returns the rows of `measure` for a store that is made for it, and what made it returned; each is also shown when
    it is known, since all of them take an hour."""
    with tempfile.TemporaryDirectory(prefix="zarrfs-scale-") as folder:
        store = Path(folder) / "store.zarr"
        made = make(store)
        rows = []
        for row in measure(store, made):
            print(table.lines([row])[1], file=sys.stderr, flush=True)
            rows.append(row)
        return rows


def shell(text, folder, longest="."):
    """Returns the seconds that a command takes."""
    start = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        subprocess.run(["sh", "-c", text, str(folder), longest], stdout=nowhere, check=True)
    return time.perf_counter() - start


def walks(case, store, array, rounds):
    """Yields the rows of walking a store in both views."""
    yield from mount_rows(case.name, store, array, case.options)
    for name in case.commands:
        text = COMMANDS[name]
        shell(text, store, case.longest)
        for view in ("store", "files"):
            plain, ours, peaks = [], [], []
            for _ in range(rounds):
                plain.append(shell(text, store, case.longest))
                with mounting.Daemon(store, *case.options) as mount:
                    ours.append(shell(text, folder_of(mount, view), case.longest))
                    peaks.append(mount.peak_bytes() / MIB)
            ratios = [mine / theirs for mine, theirs in zip(ours, plain)]
            aim = case.most_find if (name, view) == ("find", "store") else None
            yield timed(f"{name}, {view} view", min(ours), "plain folder", min(plain), min(ratios), aim)
            yield memory("", "peak", max(peaks), case.most_resident)


def mount_rows(name, store, array, options):
    """Yields the rows of mounting a store, and of the first byte of an array as it is stored and decoded."""
    start = time.perf_counter()
    with mounting.Daemon(store, *options) as mount:
        mounted = time.perf_counter() - start
        yield timed(name, mounted, "mount", None)
        stored = first_byte(next(path for path in (mount.path / array).rglob("*") if path.is_file()))
        yield timed("", stored, "first byte, stored", None)
        yield timed("", first_byte(decoded_file(mount.files / array)), "first byte, decoded", None)
        yield memory("", "resident", mount.peak_bytes() / MIB, None)


def first_byte(path):
    """Returns the seconds until the first byte of a file is there."""
    start = time.perf_counter()
    with open(path, "rb") as file:
        file.read(1)
    return time.perf_counter() - start


def decoded_file(folder):
    """Returns the file of an array's elements, which opens by its name also where only chunks are listed."""
    listed = (path for path in folder.iterdir() if path.suffix in (".npy", ".txt") and path.is_file())
    return next(listed, folder / f"{folder.name}.npy")


def documents(case, store):
    """Yields the rows of reading one long metadata file in both views, each with its own mount."""
    views = {
        "store": ["old/.zattrs", "new/zarr.json"],
        "files": ["old/attributes.json", "old/metadata.json", "new/attributes.json", "new/metadata.json"],
    }
    stored = (store / "new" / "zarr.json").stat().st_size / MIB
    yield timed(case, shell('cat "$0"', store / "new" / "zarr.json"), "plain file", None)
    for view, names in views.items():
        for name in names:
            with mounting.Daemon(store) as mount:
                before = mount.resident_bytes() / MIB
                path = folder_of(mount, view) / name
                try:
                    path.stat()
                except OSError as error:
                    print(f"{case}: {name} of the {view} view does not read: {error.strerror}")
                    continue
                seconds = shell('cat "$0"', path)
                size = path.stat().st_size / MIB
                peak, after = mount.peak_bytes() / MIB, mount.resident_bytes() / MIB
                time.sleep(IDLE_SECONDS)
                idle = mount.resident_bytes() / MIB
            most = TIMES_DOCUMENT * stored
            yield timed(f"cat {name}, {view} view", seconds, f"{size:.0f} MiB", None)
            yield memory("", "peak, beyond before", peak - before, most)
            yield memory("", "resident afterwards", after - before, None)
            yield memory("", "resident when idle", idle - before, stored + KEPT)


def flat(case, store, chunks):
    """Yields the rows of a directory of many names: memory per name while the kernel knows it, and afterwards."""
    yield timed(case, shell('du -s "$0"', store), "plain du", None)
    for options in ((), ("--cow",)):
        for view in ("store", "files"):
            with tempfile.TemporaryDirectory(prefix="zarrfs-upper-") as upper:
                changing = (*options, str(Path(upper) / "upper")) if options else ()
                with mounting.Daemon(store, *changing) as mount:
                    folder = folder_of(mount, view)
                    before = mount.resident_bytes()
                    seconds = shell('du -s "$0"', folder)
                    grown = mount.resident_bytes() - before
                    forget_names()
                    left = mount.resident_bytes() - before
            yield timed(f"du, {view} view {' '.join(options)}", seconds, "", None)
            yield table.limit("", "a name", grown / chunks, "bytes", BYTES_A_NAME)
            yield table.Row("", left / chunks, "when forgotten", None, "bytes", 0, None, True)


# Shell commands for a bucket, with its mount as $0, and the maximum number of requests: one key costs the same in a
# bucket of any size.
BUCKET_COMMANDS = {
    "ls -f many | head, store view": ('ls -f "$0"/many | head -5', 20),
    "stat of a chunk, store view": ('stat "$0"/many/500000', 2),
    "read of a chunk, store view": ('cat "$0"/many/500001', 3),
    "first bytes decoded": ('head -c 136 "$0"/.zarrfs/files/many/many.npy', 20),
    "ls -f many, store view": ('ls -f "$0"/many', None),
}


def many_keys(case, keys):
    """Yields the rows of a bucket of many keys, of commands each with a mount of its own."""
    with scale_bucket.served(keys) as (bucket, options):
        for name, (text, most) in BUCKET_COMMANDS.items():
            with mounting.Daemon("s3://b", *options) as mount:
                time.sleep(1)
                before = bucket.requests
                yield timed(f"{case}: {name}", shell(text, mount.path), "", None)
                asked = bucket.requests - before
                if most is not None:
                    yield table.limit("", "requests", asked, "", most)
                yield memory("", "peak", mount.peak_bytes() / MIB, None)


def forget_names():
    """Has the kernel drop the names that it knows; only root can."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("2")
    except OSError as error:
        print(f"names not dropped: {error}")
    time.sleep(2)


def folder_of(mount, view):
    return mount.path if view == "store" else mount.files


def timed(case, seconds, peer_name, peer, ratio=0, aim=None):
    return table.Row(case, seconds, peer_name, peer, "s", ratio, aim, aim is not None)


def memory(case, what, value, most):
    if most is None:
        return table.Row(case, value, what, None, "MiB", 0, None, True)
    return table.limit(case, what, value, "MiB", most)
