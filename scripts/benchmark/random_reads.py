"""Reads of 4 KiB at random places: out of the page cache, and out of the daemon's cache of decoded chunks."""

from contextlib import ExitStack, contextmanager

import arrays
import host_memory
import peers
import table
import warm

WARM_READS = 50_000
DAEMON_READS = 10_000
READ_BYTES = DAEMON_READS * 4096


def run(arguments):
    rows = []
    # A read of 4 KiB touches 8 cubes of 64, and one or two planes.
    for name, places in (("zstd-1M", "8 chunks"), ("planes-zstd-1M", "1 chunk")):
        store = arrays.store(arrays.case(name), arguments.size)
        arrays.warm_up(store)
        with ExitStack() as mounts:
            mount = mounts.enter_context(decoded(store, arguments))
            before = None
            if arguments.before:
                with peers.built(arguments.before):
                    before = mounts.enter_context(decoded(store, arguments))
            if not rows:
                rows += page_cache(mount, arguments)
            rows += decoded_cache(mount, before, arguments, places)
    return rows


@contextmanager
def decoded(store, arguments):
    """Yields a mount with all chunks decoded."""
    with peers.Ours(store, "--memory", f"{2 * arguments.size + 64}M") as mount:
        decode_all(mount)
        yield mount


def decode_all(mount):
    """Decodes every chunk into memory: a sequential reader lets zarrfs drop the chunks that it has read."""
    mount.read("whole")
    forgotten(mount, DAEMON_READS)


def forgotten(mount, seed):
    """Reads at random places of a file that is not in the page cache."""
    peers.read_file("forget", mount.npy)
    host_memory.touch(READ_BYTES)
    return mount.read("random", DAEMON_READS, seed)


def page_cache(mount, arguments):
    """Returns the row of reads that the kernel answers alone."""
    ours, plain = [], []
    with warm.copies(mount.npy) as (tmpfs, _):
        for seed in range(arguments.rounds):
            ours.append(peers.read_file("random", mount.npy, WARM_READS, seed))
            plain.append(peers.read_file("random", tmpfs, WARM_READS, seed))
    return [table.speeds("4 KiB, page cache", "tmpfs", ours, plain)]


def decoded_cache(mount, before, arguments, places):
    """Returns the rows of reads that the daemon answers out of decoded chunks, each out of `places`; `before` is the
    mount of an older build, if there is one."""
    ours, buffered, older = [], [], []
    chunks = mount.stats().get("decoded_chunks")
    readahead = peers.readahead(mount.path)
    with peers.Buffer(mount.npy.stat().st_size, readahead) as buffer:
        buffer.read("whole")
        for seed in range(arguments.rounds):
            ours.append(forgotten(mount, seed))
            if before:
                older.append(forgotten(before, seed))
            buffer.forget()
            host_memory.touch(READ_BYTES)
            buffered.append(buffer.read("random", DAEMON_READS, seed))
    again = mount.stats().get("decoded_chunks")
    if again != chunks:
        print(f"chunks were decoded again: {chunks} before, {again} after")
    case = f"4 KiB, decoded, {places}"
    peer = "fuser from a buffer"
    mine, theirs = per_read(ours), per_read(buffered)
    ratio = mine / theirs if theirs else 0
    rows = [
        table.speeds(case, peer, ours, buffered, 0.8),
        table.Row("  daemon", mine, peer, theirs, "CPU-us/read", ratio, None, False),
    ]
    return rows + table.since(ours, older)


def per_read(reads):
    """Returns the daemon's CPU microseconds for one read."""
    return sum(read.served for read in reads) * 1e6 / (DAEMON_READS * len(reads))
