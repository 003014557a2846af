"""The measured programs: the mounted daemon and its peers."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zarr

import layout
import mounting

EXAMPLES = mounting.ROOT / "target" / "release" / "examples"

# The cost of one read: the reader's CPU seconds, the daemon's CPU seconds, the seconds in the daemon's own code, and the
# number of fresh pages that the kernel gave to the daemon.
Read = namedtuple("Read", "seconds bytes cpu served user faults", defaults=[0.0, 0.0, 0])


def read_file(mode, path, *more):
    """Runs the benchmark's reader on a file."""
    command = [EXAMPLES / "read_file", mode, path, *more]
    out = subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True
    )
    return parsed(out.stdout) if out.stdout else None


def parsed(line):
    seconds, count, cpu = line.split()
    return Read(float(seconds), int(count), float(cpu))


class Ours(mounting.Daemon):
    """zarrfs, mounted with the store of one root array."""

    @property
    def npy(self):
        """The whole array as a decoded file."""
        return layout.decoded(self.files, self.store, "/", "npy")

    def read(self, mode, *more):
        """Reads the decoded file, and adds the CPU time of the daemon."""
        before, faults = self.cpu_times(), self.faults()
        read = read_file(mode, self.npy, *more)
        user, system = (b - a for a, b in zip(before, self.cpu_times()))
        return read._replace(
            served=user + system, user=user, faults=self.faults() - faults
        )

    def faults(self):
        """Returns how often the daemon touched a page that it did not have."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        return int(fields.split()[7])

    def stats(self):
        """Returns the daemon's counters."""
        return json.loads((self.path / ".zarrfs" / "stats.json").read_text())


@contextmanager
def built(program):
    """Has everything inside mount with another build of zarrfs."""
    now = os.environ.get("ZARRFS")
    os.environ["ZARRFS"] = str(program)
    try:
        yield
    finally:
        if now is None:
            del os.environ["ZARRFS"]
        else:
            os.environ["ZARRFS"] = now


def has_bindfs():
    """Whether bindfs is installed."""
    return shutil.which("bindfs") is not None


@contextmanager
def bound(folder):
    """Yields a mount of bindfs, which passes a directory through FUSE; changes go to the directory."""
    with tempfile.TemporaryDirectory(prefix="zarrfs-bound-") as path:
        subprocess.run(["bindfs", folder, path], check=True)
        try:
            yield Path(path)
        finally:
            subprocess.run(["umount", path], check=True)


class Buffer:
    """A fuser daemon that replies from memory, with the kernel's readahead that it is given."""

    def __init__(self, size, readahead):
        self.size = size
        self.readahead = readahead

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="zarrfs-buffer-")
        path = self.folder.name
        self.file = Path(path) / "data"
        command = [str(EXAMPLES / "buffer_fs"), path, str(self.size)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        if not mounting.wait_until(lambda: mounting.is_mounted(path), 60):
            self.__exit__()
            raise SystemExit("buffer_fs did not mount")
        set_readahead(path, self.readahead)
        return self

    def __exit__(self, *_):
        mounting.lazy_unmount(self.folder.name)
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    cpu_seconds = mounting.Daemon.cpu_seconds
    cpu_times = mounting.Daemon.cpu_times

    def read(self, mode, *more):
        before = self.cpu_seconds()
        read = read_file(mode, self.file, *more)
        return read._replace(served=self.cpu_seconds() - before)

    def forget(self):
        read_file("forget", self.file)


def readahead(mount):
    """Returns the KiB that the kernel reads ahead on a mount."""
    return readahead_file(mount).read_text()


def set_readahead(mount, value):
    """Gives a mount the kernel's readahead of another; only root can."""
    try:
        readahead_file(mount).write_text(value)
    except OSError as error:
        print(f"readahead of the peer not set: {error}")


def readahead_file(mount):
    device = os.stat(mount).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    return Path("/sys/class/bdi") / name / "read_ahead_kb"


class Zarrs:
    """The zarrs crate in a process of its own, one whole read for each call."""

    def __init__(self, store):
        self.store = store

    def __enter__(self):
        command = [str(EXAMPLES / "zarrs_read"), str(self.store), "/"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.read()
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def read(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return parsed(self.process.stdout.readline())


def zarr_python(store):
    """Reads the whole array with zarr-python, into C order as the file has it."""
    cpu, start = time.process_time(), time.perf_counter()
    data = np.ascontiguousarray(zarr.open_array(store, mode="r")[...])
    seconds = time.perf_counter() - start
    return Read(seconds, data.nbytes, time.process_time() - cpu)


# GDAL belongs to Debian's Python. It reads v2, several chunks at a time.
GDAL = """
import sys, time
from osgeo import gdal
gdal.UseExceptions()
gdal.SetConfigOption("GDAL_NUM_THREADS", "ALL_CPUS")
cpu, start = time.process_time(), time.perf_counter()
group = gdal.OpenEx(sys.argv[1], gdal.OF_MULTIDIM_RASTER).GetRootGroup()
array = group.OpenMDArray(group.GetMDArrayNames()[0])
array.AdviseRead(options=["CACHE_SIZE=4000000000"])
data = array.Read()
print(time.perf_counter() - start, len(data), time.process_time() - cpu)
"""


def has_gdal():
    """Whether GDAL's bindings are installed."""
    command = ["/usr/bin/python3", "-c", "from osgeo import gdal"]
    return subprocess.run(command, capture_output=True).returncode == 0


def gdal(store):
    """Reads the whole array with GDAL's reader of arrays of several dimensions."""
    command = ["/usr/bin/python3", "-c", GDAL, str(store)]
    return parsed(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def tensorstore(store):
    """Reads the whole array with tensorstore, in C order; it opens the array again, without a cache."""
    import tensorstore as ts

    driver = "zarr3" if (store / "zarr.json").exists() else "zarr"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{store}/"}}
    cpu, start = time.process_time(), time.perf_counter()
    data = np.ascontiguousarray(ts.open(spec, open=True).result().read(order="C").result())
    seconds = time.perf_counter() - start
    return Read(seconds, data.nbytes, time.process_time() - cpu)
