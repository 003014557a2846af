"""Whole .npy files read cold: a fresh mount each round, the stored chunks in the page cache for all peers alike."""

import os

import arrays
import host_memory
import peers
import table

# CPU seconds a GiB that the kernel may spend for the daemon.
KERNEL = 0.55


def run(arguments):
    rows = []
    for case in arrays.chosen(arguments):
        rows += measure(case, arguments)
    return rows


def measure(case, arguments):
    """Returns the rows of one array."""
    store = arrays.store(case, arguments.size)
    arrays.warm_up(store)
    ours, before, buffered, zarrs, python, tensors, gdal, counters = [], [], [], [], [], [], [], []
    in_v2 = arrays.in_v2(case, arguments.size) if peers.has_gdal() else None
    if in_v2:
        arrays.warm_up(in_v2)
    with peers.Ours(store) as mount:
        size, readahead = mount.npy.stat().st_size, peers.readahead(mount.path)
    with peers.Buffer(size, readahead) as buffer, peers.Zarrs(store) as in_process:
        for number in range(arguments.rounds):
            # The read behind another peer's finds colder caches: the builds take turns at being first.
            if number % 2:
                before += older(store, arguments)
            read, counted = read_ours(store)
            ours.append(read)
            counters.append(counted)
            if not number % 2:
                before += older(store, arguments)
            others = [(zarrs, in_process.read)]
            others += [(python, lambda: peers.zarr_python(store)), (tensors, lambda: peers.tensorstore(store))]
            if in_v2:
                others.append((gdal, lambda: peers.gdal(in_v2)))
            buffer.forget()
            others.append((buffered, lambda: buffer.read("whole")))
            for done, work in others:
                host_memory.touch(size)
                done.append(work())
    rows = [
        table.speeds(case.name, "zarrs in process", ours, zarrs, case.zarrs_aim),
        table.speeds("", "zarr-python z[:]", ours, python, 1.0),
        table.speeds("", "tensorstore", ours, tensors, 1.0),
        table.speeds("", "fuser from a buffer", ours, buffered, case.buffer_aim),
    ]
    if gdal:
        rows.append(table.speeds("", "GDAL, v2", ours, gdal, None))
    rows += table.since(ours, before)
    return rows + costs(ours, counters)


def older(store, arguments):
    """Returns the same read by an older build; none without that build."""
    if not arguments.before:
        return []
    with peers.built(arguments.before):
        return [read_ours(store)[0]]


def read_ours(store):
    """Reads the whole file through a fresh mount; returns the read and the daemon's counters."""
    with peers.Ours(store) as mount:
        host_memory.touch(mount.npy.stat().st_size)
        return mount.read("whole"), mount.stats()


def costs(ours, counters):
    """Returns the rows of the daemon's CPU time, of its fresh memory, copies and decodes."""
    whole, user = table.cost(ours), table.cost(ours, "user")
    kernel = whole - user
    fresh = sum(read.faults for read in ours) * os.sysconf("SC_PAGE_SIZE")
    fresh *= 1 / sum(read.bytes for read in ours)
    copied = sum(counted.get("copied_bytes", 0) for counted in counters) / sum(read.bytes for read in ours)
    loaded = sum(counted.get("decoded_chunks", 0) for counted in counters)
    again = sum(counted.get("decoded_again_chunks", 0) for counted in counters)
    rows = [
        table.Row("  user CPU", user, "whole", whole, "CPU-s/GiB", user, None, False),
        table.limit("  kernel", "for the daemon", kernel, "CPU-s/GiB", KERNEL),
        table.Row("  fresh memory", fresh, "of each byte read", None, "", fresh, None, False),
        table.Row("  copied", copied, "of each byte read", None, "", copied, None, False),
    ]
    if loaded > 0:
        decodes = loaded / max(loaded - again, 1)
        rows.append(table.limit("  decodes", "of each chunk", decodes, "", 1.1))
    return rows
