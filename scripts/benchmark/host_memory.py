"""Memory that is there: the host of a virtual machine takes back what was freed some seconds ago, and gives it again page
by page as it is touched, at 2 seconds a GiB. Who touches fresh memory first would pay for the others, so each peer starts
with free memory that was touched a moment ago. What a host charges is not measured."""

import contextlib
import mmap
import time

MIB = 1 << 20

# <linux/mman.h>; Python's mmap has no name for it. Since Linux 5.14.
MADV_POPULATE_WRITE = 23

# Beside what is read or written: as much as a daemon may hold.
BESIDE = 512 * MIB

# The kernel tells its host what is free 2 seconds after the first page was freed. Memory that is held until all earlier
# pages were told of stays for 2 seconds when it is freed, however much was freed before.
HELD = 2.5


def touch(size):
    """Touches as much free memory as a peer takes for `size` bytes: once in its own memory and once as pages of files."""
    with mmap.mmap(-1, 2 * size + BESIDE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        populate(memory)
        time.sleep(HELD)


def populate(memory):
    """Touches every page, in large pages where the kernel has them."""
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    try:
        memory.madvise(MADV_POPULATE_WRITE)
    except OSError:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
