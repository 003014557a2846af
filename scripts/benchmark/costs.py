"""Processor time of a cold read: samples of perf by the daemon's kind of work, in CPU seconds per GiB. A further row has
the reader's own time, in which the kernel copies pages to it."""

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import arrays
import host_memory
import peers
import table

NANOSECONDS = 1e9

# Kinds of work, and the functions that show them: anywhere in the stack, then where the processor was.
BY_STACK = {
    "fresh memory": r"page_fault|clear_page|do_anonymous_page",
    "requests": r"^fuse_|^do_writev|^vfs_writev",
    "stored files": r"^ksys_pread|^__x64_sys_pread|^filemap_read|^do_sys_openat|^__do_sys_newfstat|statx",
    "threads": r"futex|^schedule|^do_sched_yield|^madvise|^do_madvise",
}
COPY = r"copy|rep_movs|memcpy|memmove"
# Loops of zstd that are written in assembly have no name.
CODEC = r"ZSTD|HUF_|FSE_|XXH|LZ4|lz4|blosc|shuffle|deflate|crc32|adler|^\[unknown\]$"


def run(arguments):
    if shutil.which("perf") is None:
        raise SystemExit("perf is not installed: on Debian it is in linux-perf")
    return [row for case in arrays.chosen(arguments) for row in measure(case, arguments)]


def measure(case, arguments):
    """Returns the rows of one array."""
    store = arrays.store(case, arguments.size)
    arrays.warm_up(store)
    spent, bytes_read, reader = Counter(), 0, 0.0
    for _ in range(arguments.rounds):
        with peers.Ours(store) as mount:
            host_memory.touch(mount.npy.stat().st_size)
            with sampled(mount.process.pid) as samples:
                read = mount.read("whole")
        spent.update(samples)
        bytes_read += read.bytes
        reader += read.cpu
    costs = {kind: nanoseconds / NANOSECONDS for kind, nanoseconds in spent.most_common()}
    costs["the reader"] = reader
    rows = [row("  " + kind, seconds * table.GIB / bytes_read) for kind, seconds in costs.items()]
    return [row(case.name, sum(costs.values()) * table.GIB / bytes_read), *rows]


def row(case, seconds):
    return table.Row(case, seconds, "", None, "CPU-s/GiB", seconds, None, True)


class sampled:
    """Samples a process while it is open, then counts the nanoseconds of each kind of work."""

    def __init__(self, pid):
        self.pid = pid
        self.kinds = Counter()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="zarrfs-perf-")
        self.data = Path(self.folder.name) / "data"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-g", "-p", str(self.pid), "-o", str(self.data)]
        self.perf = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        return self.kinds

    def __exit__(self, *_):
        self.perf.send_signal(signal.SIGINT)
        self.perf.wait()
        command = ["perf", "script", "-i", str(self.data), "-F", "period,ip,sym"]
        script = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for sample in script.stdout.strip().split("\n\n"):
            head, *stack = sample.splitlines()
            functions = [line.split(None, 1)[1] for line in stack if len(line.split(None, 1)) > 1]
            if head.strip().isdigit() and functions:
                self.kinds[kind_of(functions)] += int(head)
        self.folder.cleanup()


def kind_of(functions):
    """Returns the kind of work of a stack, whose first function is where the processor was."""
    for kind, pattern in BY_STACK.items():
        if any(re.search(pattern, function) for function in functions):
            copies = kind == "requests" and re.search(COPY, functions[0])
            return "copies of FUSE" if copies else kind
    if re.search(CODEC, functions[0]):
        return "codec"
    return "copies by zarrfs" if re.search(COPY, functions[0]) else "the rest of zarrfs"
