"""Whole .npy files read cold: a fresh mount each round, the stored chunks in the page cache for all peers alike."""

from statistics import mean

import arrays
import peers
import table

# CPU seconds a GiB that the daemon may spend beside the codec and the kernel's copy.
OWN = 0.15


def run(arguments):
    rows = []
    for case in arrays.chosen(arguments):
        rows += measure(case, arguments)
    return rows


def measure(case, arguments):
    """Returns the rows of one array."""
    store = arrays.store(case, arguments.size)
    arrays.warm_up(store)
    ours, before, buffered, zarrs, python, decoding = [], [], [], [], [], []
    with peers.Ours(store) as mount:
        size, readahead = mount.npy.stat().st_size, peers.readahead(mount.path)
    with peers.Buffer(size, readahead) as buffer, peers.Zarrs(store) as in_process:
        for _ in range(arguments.rounds):
            read, decode = read_ours(store)
            ours.append(read)
            decoding.append(decode)
            if arguments.before:
                with peers.built(arguments.before):
                    before.append(read_ours(store)[0])
            zarrs.append(in_process.read())
            python.append(peers.zarr_python(store))
            buffer.forget()
            buffered.append(buffer.read("whole"))
    rows = [
        table.speeds(case.name, "zarrs in process", ours, zarrs, case.zarrs_aim),
        table.speeds("", "zarr-python z[:]", ours, python, 1.0),
        table.speeds("", "fuser from a buffer", ours, buffered, case.buffer_aim),
    ]
    return rows + table.since(ours, before) + costs(ours, decoding)


def read_ours(store):
    """Reads the whole file through a fresh mount; returns the read, and the seconds a GiB spent in decoding."""
    with peers.Ours(store) as mount:
        read = mount.read("whole")
        nanoseconds = mount.stats().get("decode_nanoseconds", 0)
    return read, nanoseconds / 1e9 * table.GIB / read.bytes


def costs(ours, decoding):
    """Returns the row of the daemon's CPU time: all of it, and what is neither codec nor kernel. The codec's
    includes what the kernel does for it, so the rest looks a little smaller than it is."""
    whole, user, codec = table.cost(ours), table.cost(ours, "user"), mean(decoding)
    own = user - codec
    what = f"whole daemon; codec {codec:.2f}, kernel {whole - user:.2f}"
    return [table.Row("  own CPU", own, what, whole, "CPU-s/GiB", own, OWN, True)]
