"""An array with rows of chunks of twice the memory budget, with a spill file."""

from statistics import median

from zarr.codecs import ZstdCodec

import arrays
import host_memory
import peers
import table

# The row of chunks, which is read plane by plane, has 256 of half a MiB; the budget is in MiB.
CASE = arrays.Case(
    "row-zstd-512K", dict(chunks=(128, 32, 32), compressors=ZstdCodec(level=1)), None, None
)
BUDGET = 64

# Of the speed without a limit, and decodes of each chunk.
SPEED = 0.4
DECODES = 1.1


def run(arguments):
    store = arrays.store(CASE, arguments.size)
    arrays.warm_up(store)
    free, spilled, counters = [], [], []
    for _ in range(arguments.rounds):
        free.append(read(store)[0])
        one, counted = read(store, "--memory", f"{BUDGET}M")
        spilled.append(one)
        counters.append(counted)
    decodes = median(decodes_of(counted) for counted in counters)
    return [
        table.speeds("row twice the budget", "without a limit", spilled, free, SPEED),
        table.limit("  decodes", "of each chunk", decodes, "", DECODES),
    ]


def read(store, *options):
    with peers.Ours(store, *options) as mount:
        host_memory.touch(mount.npy.stat().st_size)
        return mount.read("whole"), mount.stats()


def decodes_of(counted):
    first = counted["decoded_chunks"] - counted["decoded_again_chunks"]
    return counted["decoded_chunks"] / max(first, 1)
