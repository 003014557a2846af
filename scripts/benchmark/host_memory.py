"""Memory from the host of a virtual machine.

The host takes freed memory back after some seconds, and returns it page by page when it is touched, at 2 seconds per
GiB. The first peer to touch fresh memory would pay for the others. So each peer starts with free memory that was touched a
moment ago, and the time of the host is not measured."""

import contextlib
import mmap
import time

MIB = 1 << 20

# <linux/mman.h>; Python's mmap has no name for it. Since Linux 5.14.
MADV_POPULATE_WRITE = 23

# In addition to the data: the memory that a daemon may hold.
BESIDE = 512 * MIB

# The kernel reports free pages to its host 2 seconds after the first page was freed. If a program holds memory until all
# earlier pages were reported, this memory stays for 2 seconds after it is freed.
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
