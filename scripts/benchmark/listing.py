"""Directories of a million entries: `ls -f` of computed chunk files, and of stored ones."""

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

import zarr

import mounting
import peers
import table

COUNT = 1_000_000


def computed(arguments):
    """The files view of an array of a million chunks, none of them stored."""
    store = Path(warm_folder("zarrfs-bench-computed.zarr"))
    try:
        zarr.create_array(store, shape=(COUNT,), chunks=(1,), dtype="u1")
        return beside_older("computed", store, lambda mount: mount.files / "chunks", arguments)
    finally:
        shutil.rmtree(store)


def stored(arguments):
    """The store view of a directory with a million keys."""
    store = Path(warm_folder("zarrfs-bench-stored.zarr"))
    try:
        zarr.create_array(store, shape=(COUNT,), chunks=(1,), dtype="u1")
        (store / "c").mkdir()
        for number in range(COUNT):
            os.close(os.open(store / "c" / str(number), os.O_CREAT | os.O_WRONLY))
        return beside_older("stored", store, lambda mount: mount.path / "c", arguments)
    finally:
        shutil.rmtree(store)


def beside_older(name, store, folder, arguments):
    """Returns the rows of this build, and the ratio of an older one's CPU time to its own."""
    with mounting.Daemon(store) as mount:
        rows = measure(name, mount, folder(mount), arguments)
    if arguments.before:
        with peers.built(arguments.before), mounting.Daemon(store) as mount:
            older = measure(name, mount, folder(mount), arguments)[0].ours
        ratio = older / rows[0].ours
        rows.append(table.Row("", rows[0].ours, "zarrfs before", older, "CPU-s/million", ratio, 0.97, False))
    return rows


def warm_folder(name):
    path = Path("/dev/shm") / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def measure(name, mount, folder, arguments):
    """Lists `folder` in rounds; returns the rows of CPU time for a million names, and of memory."""
    entries = sum(1 for _ in os.scandir(folder))
    before = mount.peak_bytes()
    cpu, wall = [], []
    for _ in range(arguments.rounds):
        spent = children() + mount.cpu_seconds()
        start = time.perf_counter()
        with open(os.devnull, "w") as nowhere:
            subprocess.run(["ls", "-f", folder], stdout=nowhere, check=True)
        wall.append((time.perf_counter() - start) / entries * COUNT)
        cpu.append((children() + mount.cpu_seconds() - spent) / entries * COUNT)
    grown = (mount.peak_bytes() - before) / table.MIB
    case = f"ls -f, {name}, {entries} names"
    return [
        table.limit(case, "client and daemon", median(cpu), "CPU-s/million", 1.0),
        table.Row("", median(wall), "", None, "s/million", 0, None, True),
        table.limit("", "growth of the daemon", grown, "MiB", 16),
    ]


def children():
    """Returns the CPU seconds of all processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
