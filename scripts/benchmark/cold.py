"""Whole .npy files read cold: a fresh mount each round, the stored chunks in the page cache for all peers alike."""

import os
from statistics import median

import arrays
import host_memory
import peers
import table

# CPU seconds a GiB that the daemon may spend beside the codec and the kernel, and that the kernel may for it.
OWN = 0.1
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
    return rows + [floor(ours, counters, buffered)] + costs(ours, counters)


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


def codec(ours, counters):
    """Returns the CPU seconds a GiB that were spent in decoding."""
    spent = sum(counted.get("decode_nanoseconds", 0) for counted in counters)
    return spent / 1e9 * table.GIB / sum(read.bytes for read in ours)


def floor(ours, counters, buffered):
    """Returns the row beside the speed that the codec and a mount without any work of its own would have together on
    all cores: nothing that answers the kernel is faster."""
    cores = len(os.sched_getaffinity(0))
    mount = table.cost(buffered) + table.cost(buffered, "cpu")
    seconds = (codec(ours, counters) + mount) / cores
    speed = table.GIB / table.MIB / seconds
    mine = median(map(table.speed, ours))
    return table.Row("", mine, "codec and bare mount", speed, "MiB/s", mine / speed, None, False)


def costs(ours, counters):
    """Returns the rows of the daemon's CPU time, of its fresh memory, copies and decodes. The codec's time includes what
    the kernel does for it, so the rest looks a little smaller than it is."""
    whole, user, decoding = table.cost(ours), table.cost(ours, "user"), codec(ours, counters)
    own, kernel = user - decoding, whole - user
    what = f"own CPU; codec {decoding:.2f}, whole"
    fresh = sum(read.faults for read in ours) * os.sysconf("SC_PAGE_SIZE")
    fresh *= 1 / sum(read.bytes for read in ours)
    copied = sum(counted.get("copied_bytes", 0) for counted in counters) / sum(read.bytes for read in ours)
    loaded = sum(counted.get("decoded_chunks", 0) for counted in counters)
    again = sum(counted.get("decoded_again_chunks", 0) for counted in counters)
    rows = [
        table.Row("  own CPU", own, what, whole, "CPU-s/GiB", own, OWN, True),
        table.limit("  kernel", "for the daemon", kernel, "CPU-s/GiB", KERNEL),
        table.Row("  fresh memory", fresh, "of each byte read", None, "", fresh, None, False),
        table.Row("  copied", copied, "of each byte read", None, "", copied, None, False),
    ]
    if loaded > 0:
        decodes = loaded / max(loaded - again, 1)
        rows.append(table.limit("  decodes", "of each chunk", decodes, "", 1.1))
    return rows
