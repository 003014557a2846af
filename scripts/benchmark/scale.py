"""Stores of many arrays, long documents and many chunks: what a mount costs beside the plain folder.

Each store is made in a temporary folder. Each command has a mount of its own, so that its peak is known; the plain folder
is read once before it is measured.
"""

import os
import subprocess
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import mounting
import scale_stores
import table

MIB = 1 << 20

# A store: how it is made, the mount's options, and aims: MiB resident, and the ratio of `find` to the plain folder's.
Case = namedtuple("Case", "name make options most_resident most_find", defaults=[None, None])

# A command and what is run of it, in a shell, with the folder as $0.
COMMANDS = {
    "ls -lR": 'ls -lR "$0"',
    "find": 'find "$0"',
    "find -size": 'find "$0" -size +0',
    "du": 'du -s "$0"',
}

CASES = [
    Case(
        "346 MB in 1,500 documents",
        lambda store: scale_stores.documents(store, 1500, 230_000),
        ("--memory", "64M"),
        192,
    ),
    Case(
        "20,000 arrays, .zmetadata",
        lambda store: scale_stores.consolidated_v2(store, 20_000, 3100),
        (),
        250,
        2,
    ),
    Case(
        "20,000 arrays, consolidated zarr.json",
        lambda store: scale_stores.consolidated_v3(store, 20_000, 3100),
        (),
        250,
        2,
    ),
]

# The most bytes of memory for each of a document, and for each name.
TIMES_DOCUMENT = 4
BYTES_A_NAME = 200

CHUNKS = 300_000


def run(arguments):
    rows = []
    for case in CASES:
        if arguments.only in case.name:
            rows += with_store(case.make, lambda store, case=case: walks(case, store, arguments.rounds))
    for name, length in {"64 MiB": 64 * MIB, "93 MB": 93_000_000}.items():
        case = f"one document of {name}"
        if arguments.only in case:
            make = lambda store, length=length: scale_stores.long_attributes(store, length)
            rows += with_store(make, lambda store, case=case: documents(case, store))
    case = f"{CHUNKS} chunks in a folder"
    if arguments.only in case:
        rows += with_store(
            lambda store: scale_stores.flat_array(store, CHUNKS),
            lambda store: flat(case, store),
        )
    return rows


def with_store(make, measure):
    """Returns the rows of `measure` for a store that is made for it."""
    with tempfile.TemporaryDirectory(prefix="zarrfs-scale-") as folder:
        store = Path(folder) / "store.zarr"
        make(store)
        return list(measure(store))


def shell(text, folder):
    """Returns the seconds that a command takes."""
    start = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        subprocess.run(["sh", "-c", text, str(folder)], stdout=nowhere, check=True)
    return time.perf_counter() - start


def walks(case, store, rounds):
    """Yields the rows of walking a store in both views."""
    yield from mount_rows(case.name, store, case.options)
    for name, text in COMMANDS.items():
        shell(text, store)
        for view in ("store", "files"):
            plain, ours, peaks = [], [], []
            for _ in range(rounds):
                plain.append(shell(text, store))
                with mounting.Daemon(store, *case.options) as mount:
                    ours.append(shell(text, folder_of(mount, view)))
                    peaks.append(mount.peak_bytes() / MIB)
            ratios = [mine / theirs for mine, theirs in zip(ours, plain)]
            aim = case.most_find if (name, view) == ("find", "store") else None
            yield timed(f"{name}, {view} view", min(ours), "plain folder", min(plain), min(ratios), aim)
            yield memory("", "peak", max(peaks), case.most_resident)


def mount_rows(name, store, options):
    """Yields the rows of mounting a store and of the first byte of its first document."""
    start = time.perf_counter()
    with mounting.Daemon(store, *options) as mount:
        mounted = time.perf_counter() - start
        yield timed(name, mounted, "mount", None)
        document = next(path for path in sorted(store.rglob("*")) if path.is_file())
        start = time.perf_counter()
        with open(mount.path / document.relative_to(store), "rb") as file:
            file.read(1)
        yield timed("", time.perf_counter() - start, "first byte", None)
        yield memory("", "resident", mount.peak_bytes() / MIB, None)


def documents(case, store):
    """Yields the rows of reading one long document in both views, each with a mount of its own."""
    views = {
        "store": ["old/.zattrs", "new/zarr.json"],
        "files": ["old/attributes.json", "old/zarr.json", "new/attributes.json", "new/zarr.json"],
    }
    stored = (store / "new" / "zarr.json").stat().st_size / MIB
    yield timed(case, shell('cat "$0"', store / "new" / "zarr.json"), "plain file", None)
    for view, names in views.items():
        for name in names:
            with mounting.Daemon(store) as mount:
                before = mount.resident_bytes() / MIB
                path = folder_of(mount, view) / name
                if not path.exists():
                    print(f"{case}: {view} view has no {name}: it is longer than what is read")
                    continue
                seconds = shell('cat "$0"', path)
                size = path.stat().st_size / MIB
                peak, after = mount.peak_bytes() / MIB, mount.resident_bytes() / MIB
            most = TIMES_DOCUMENT * stored
            yield timed(f"cat {name}, {view} view", seconds, f"{size:.0f} MiB", None)
            yield memory("", "peak, beyond before", peak - before, most)
            yield memory("", "resident afterwards", after - before, None)


def flat(case, store):
    """Yields the rows of a folder of many names: the memory of each while the kernel knows it, and afterwards."""
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
            yield table.limit("", "a name", grown / CHUNKS, "bytes", BYTES_A_NAME)
            yield table.Row("", left / CHUNKS, "when forgotten", None, "bytes", 0, None, True)


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
