"""Programs that walk a hierarchy of many small arrays: `find`, `ls -lR` and `du` of the store view.

They are compared with the plain directory, and with bindfs, which only passes a directory through FUSE."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import mounting
import peers
import table

ARRAYS, IN_GROUP = 20_000, 100

GROUP = '{"zarr_format": 3, "node_type": "group"}'
ARRAY = """{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
    "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}"""

COMMANDS = {"find": ["find"], "find -size": ["find", "-size", "+1M"], "ls -lR": ["ls", "-lR"], "du": ["du", "-s"]}


def run(arguments):
    """Each command walks a mount that is new, as a first walk does; then the kernel knows the names."""
    count = int(ARRAYS * arguments.share)
    store = Path("/dev/shm/zarrfs-bench-walk.zarr")
    shutil.rmtree(store, ignore_errors=True)
    try:
        make(store, count)
        return [row for name in COMMANDS for row in walked(name, store, count, arguments)]
    finally:
        shutil.rmtree(store, ignore_errors=True)


def make(store, count):
    """Makes arrays of one chunk in groups."""
    store.mkdir()
    (store / "zarr.json").write_text(GROUP)
    for number in range(count):
        group = store / f"group{number // IN_GROUP}"
        if number % IN_GROUP == 0:
            group.mkdir()
            (group / "zarr.json").write_text(GROUP)
        array = group / f"array{number}"
        (array / "c").mkdir(parents=True)
        (array / "zarr.json").write_text(ARRAY)
        (array / "c/0").write_bytes(bytes(16))


def walked(name, store, count, arguments):
    """Returns the rows of one command, in arrays a second."""
    ours, before, plain, bound = [], [], [], []
    for _ in range(arguments.rounds):
        plain.append(timed(name, store, count))
        with mounting.Daemon(store) as mount:
            ours.append(timed(name, mount.path, count))
        if arguments.before:
            with peers.built(arguments.before), mounting.Daemon(store) as mount:
                before.append(timed(name, mount.path, count))
        if peers.has_bindfs():
            with peers.bound(store) as path:
                bound.append(timed(name, path, count))
    case = f"{name}, {count} arrays"
    rows = [(case, "plain folder", plain, None), ("", "bindfs", bound, 1.0), ("", "zarrfs before", before, 0.97)]
    return [
        compared(case, peer, ours, theirs, aim) for case, peer, theirs, aim in rows if theirs
    ]


def compared(case, peer, ours, theirs, aim):
    row = table.speeds(case, peer, ours, theirs, aim)
    return row._replace(ours=row.ours * table.MIB, peer=row.peer * table.MIB, unit="arrays/s")


def timed(name, folder, count):
    command, *rest = COMMANDS[name]
    start = time.perf_counter()
    subprocess.run([command, *arranged(command, folder, rest)], check=True, stdout=subprocess.DEVNULL)
    return peers.Read(time.perf_counter() - start, count, 0.0)


def arranged(command, folder, rest):
    """Returns the arguments in the order that the command takes them."""
    return [folder, *rest] if command == "find" else [*rest, os.fspath(folder)]
