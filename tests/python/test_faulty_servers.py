"""Servers that fail in every way at random, beside healthy ones: what is read is right or an error in time, and nothing is
left at the end.

It runs under `scripts/stress faults` only.
"""

import errno
import os
import random
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr

import faulty
import stalling
from mounting import Daemon, wait_until

STARTED = time.monotonic()
SECONDS = int(os.environ.get("ZARRFS_STRESS_SECONDS", 0))
SEED = int(os.environ.get("ZARRFS_STRESS_SEED", 1))
# The time limit of the mounts of servers that fail, and how long a call may take beyond it, in seconds.
LIMIT = 4
MORE = 2
# How long mounts have to be as they were.
SETTLES = 90
# For how long nothing must be asked at the end.
QUIET = 3
# How much memory a mount may have more at the end, in bytes, and how many threads and descriptors.
MORE_BYTES = 64 << 20
MORE_COUNTED = 4
# So much of what is wrong is told.
MOST_TOLD = 50
HEALTHY = ["healthy_chunks", "healthy_shards"]
FAULTY = ["faulty_chunks", "faulty_shards"]
CHUNKS = 32
ELEMENTS = 4096
READERS = 4
# A key is replaced at most so often: web servers tell times in seconds.
REPLACE_EVERY = 3
# An old content is right for so long: --metadata-ttl, what the kernel keeps, and a read that has begun before.
STALE = 2 * LIMIT + 4


class Store:
    """A store with an array of chunks and one of shards, of each kind: `healthy` ones and `faulty` ones. All elements of a
    chunk, and of a shard, are one number, and no number comes twice."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.next = CHUNKS
        self.tails = {}
        # When which number was put, of each array and chunk.
        self.puts = {}
        root = zarr.create_group(folder)
        numbers = np.repeat(np.arange(1, CHUNKS + 1, dtype="u4"), ELEMENTS)
        for kind in ("healthy", "faulty"):
            for name, options in [
                (f"{kind}_chunks", {"chunks": (ELEMENTS,)}),
                (f"{kind}_shards", {"chunks": (ELEMENTS // 4,), "shards": (ELEMENTS,)}),
            ]:
                root.create_array(name, data=numbers, compressors=None, fill_value=0, **options)
                for chunk in range(CHUNKS):
                    self.tails[name, chunk] = self.key(name, chunk).read_bytes()[4 * ELEMENTS :]
                    self.puts[name, chunk] = [(time.monotonic(), chunk + 1)]

    def key(self, name, chunk):
        return Path(self.folder, name, "c", str(chunk))

    def replace(self, name, chunk):
        """Gives a chunk another number, unless it has got one a moment before."""
        if time.monotonic() - self.puts[name, chunk][-1][0] < REPLACE_EVERY:
            return
        with self.lock:
            self.next += 1
            number = self.next
        key = self.key(name, chunk)
        new = Path(self.folder).with_name(f"new-{number}")
        new.write_bytes(np.full(ELEMENTS, number, "u4").tobytes() + self.tails[name, chunk])
        self.puts[name, chunk].append((time.monotonic(), number))
        os.replace(new, key)

    def may_be(self, name, chunk, begun):
        """Returns the numbers that a read that has begun then may find."""
        puts = self.puts[name, chunk]
        old = [number for put, number in puts if put < begun - STALE]
        return set(old[-1:]) | {number for put, number in puts if put >= begun - STALE}


class Readers:
    """Threads that read a mount until they are told to stop, and what they have found wrong."""

    def __init__(self, mount, store, names, count=READERS, may_fail=False):
        self.mount, self.store, self.names, self.may_fail = mount, store, names, may_fail
        self.over = threading.Event()
        self.wrong = []
        self.right = self.failed = 0
        self.slowest = 0
        # A path of several names would be several requests of a call.
        self.folders = {name: os.open(mount.path / name / "c", os.O_RDONLY) for name in names}
        self.decoded = {name: os.open(mount.files / name, os.O_RDONLY) for name in names}
        self.threads = [
            threading.Thread(target=self.run, args=(number, count), daemon=True)
            for number in range(count)
        ]

    def __str__(self):
        facts = f"{self.right} right, {self.failed} errors, slowest {self.slowest:.1f} s"
        return f"{self.mount.store} {self.names}: {facts}"

    def start(self):
        for thread in self.threads:
            thread.start()

    def read_each(self):
        """Reads each chunk once, in both views."""
        for name in self.names:
            for chunk in range(CHUNKS):
                for act in (self.read_key, self.read_decoded):
                    self.try_one(act, name, chunk)
        self.stop()

    def stop(self):
        self.over.set()
        for thread in [thread for thread in self.threads if thread.ident]:
            thread.join(10 * LIMIT)
            if thread.is_alive():
                self.tell("a reader hangs")
        for folder in [*self.folders.values(), *self.decoded.values()]:
            os.close(folder)

    def run(self, number, count):
        """Reads chunks that no other thread reads: for a page that another one has asked for a thread waits twice."""
        draw = random.Random(f"{SEED} {number}")
        while not self.over.is_set():
            name, chunk = draw.choice(self.names), draw.randrange(number, CHUNKS, count)
            act = draw.choices([self.read_key, self.read_decoded, self.list], [8, 8, 1])[0]
            self.try_one(act, name, chunk)
            time.sleep(0.01)

    def tell(self, what):
        place = f"{self.mount.store} at {self.mount.path.name}"
        self.wrong.append(f"{time.monotonic() - STARTED:.1f} s, {place}: {what}")

    def try_one(self, act, name, chunk):
        """Reads something of a chunk, and takes note of what is wrong."""
        what = f"{act.__name__} {name} {chunk}"
        begun = time.monotonic()
        try:
            act(name, chunk)
            self.right += 1
        except OSError as error:
            self.failed += 1
            # What is replaced while it is read is ESTALE.
            is_replaced = len(self.store.may_be(name, chunk, begun)) > 1
            is_stale = error.errno == errno.ESTALE and (is_replaced or self.may_fail)
            if not (is_stale or error.errno == errno.EIO and self.may_fail):
                self.tell(f"{what}: {error}")
        except AssertionError as error:
            self.tell(f"{what}: {error}")

    def in_time(self, what, call, requests=1):
        """Makes a system call, which must not take long, whatever comes of it: each of its requests has the time limit."""
        begun = time.monotonic()
        try:
            return call()
        finally:
            took = time.monotonic() - begun
            self.slowest = max(self.slowest, took)
            if took > requests * LIMIT + MORE:
                self.tell(f"{what} took {took:.1f} s")

    def read(self, path, folder, span):
        """Opens a file and reads a part of it; the kernel neither reads more nor keeps it."""
        open_file = partial(os.open, path, os.O_RDONLY, dir_fd=folder)
        # The kernel looks the name up first. Of a decoded file that takes the metadata, which fail as well.
        requests = 2 if path.endswith(".raw") else 1
        opened = self.in_time(f"open {path}", open_file, requests)
        data = b""
        try:
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_RANDOM)
            # Where a later page is an error, the first read ends before it.
            while len(data) < span[1]:
                count, place = span[1] - len(data), span[0] + len(data)
                part = self.in_time(f"read {path}", lambda: os.pread(opened, count, place))
                if not part:
                    break
                data += part
            return data
        finally:
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(opened)

    def read_key(self, name, chunk):
        may_be = partial(self.store.may_be, name, chunk, time.monotonic())
        tail = self.store.tails[name, chunk]
        size = 4 * ELEMENTS + len(tail)
        data = self.read(str(chunk), self.folders[name], (0, size + 1))
        assert len(data) == size, f"{len(data)} bytes of {size}"
        assert data[4 * ELEMENTS :] == tail, "another index"
        self.check(data[: 4 * ELEMENTS], may_be())

    def read_decoded(self, name, chunk):
        may_be = partial(self.store.may_be, name, chunk, time.monotonic())
        size = 4 * ELEMENTS
        data = self.read(f"{name}.raw", self.decoded[name], (chunk * size, size))
        assert len(data) == size, f"{len(data)} bytes of {size}"
        self.check(data, may_be())

    def check(self, data, may_be):
        numbers = np.unique(np.frombuffer(data, "u4"))
        assert set(numbers.tolist()) <= may_be, f"{numbers} where {may_be} are"

    def list(self, name, _):
        # Of its own: threads that list by one descriptor share the place in it.
        folder = os.open(".", os.O_RDONLY, dir_fd=self.folders[name])
        try:
            names = self.in_time(f"list {name}", lambda: os.listdir(folder))
        finally:
            os.close(folder)
        assert set(names) == {str(chunk) for chunk in range(CHUNKS)}, f"{len(names)} names"


class Facts:
    """What a daemon has now."""

    def __init__(self, mount):
        process = Path(f"/proc/{mount.process.pid}")
        self.threads = len(os.listdir(process / "task"))
        self.descriptors = len(os.listdir(process / "fd"))
        self.resident = mount.resident_bytes()

    def __str__(self):
        return f"{self.threads} threads, {self.descriptors} descriptors, {self.resident >> 20} MiB"

    def is_like(self, before, resident):
        return (
            self.threads <= before.threads + MORE_COUNTED
            and self.descriptors <= before.descriptors + MORE_COUNTED
            and self.resident <= resident + MORE_BYTES
        )


def place(server, kind):
    """Returns how a store is mounted, so that little is kept of it."""
    options = ["--timeout", f"{LIMIT}s", "--metadata-ttl", "1s", "--memory", "32M"]
    options += ["--option", "pool_idle_timeout=2s"]
    if kind == "s3":
        return [f"s3://{stalling.BUCKET}", "--endpoint", server.url, "--anon", *options]
    return [server.url, *options]


def replace(store, over):
    """Replaces chunks until it is told to stop."""
    draw = random.Random(SEED)
    while not over.wait(0.05):
        store.replace(draw.choice(HEALTHY + FAULTY), draw.randrange(CHUNKS))


@pytest.fixture
def served(tmp_path):
    """Makes a store and mounts it four times: of a server that fails and of one that does not, as a folder and as a bucket.
    Returns the store, both servers, and the mounts of each."""
    store = Store(tmp_path / "s.zarr")
    with ExitStack() as stack:
        kind = partial(faulty.FaultyServer, seed=SEED)
        servers = [stack.enter_context(stalling.serving(store.folder, kind)) for _ in range(2)]
        mounts = [
            [stack.enter_context(Daemon(*place(server, kind))) for kind in ("http", "s3")]
            for server in servers
        ]
        yield store, servers, mounts


def read_for(seconds, groups):
    """Has groups of readers read for a while, at the same time."""
    for readers in groups:
        readers.start()
    time.sleep(seconds)
    for readers in groups:
        readers.stop()


@pytest.mark.skipif(not SECONDS, reason="scripts/stress faults runs it")
def test_servers_that_fail_at_random(served):
    store, (server, other), (failing, healthy) = served
    mounts = failing + healthy
    first = [Facts(mount) for mount in mounts]
    calm = [Readers(mount, store, HEALTHY + FAULTY) for mount in mounts]
    read_for(3, calm)
    resident = [mount.resident_bytes() for mount in mounts]
    over = threading.Event()
    replacing = threading.Thread(target=replace, args=(store, over), daemon=True)
    replacing.start()
    # Those of keys that fail wait most of the time.
    stormy = [Readers(mount, store, FAULTY, 4 * READERS, may_fail=True) for mount in failing]
    stormy += [Readers(mount, store, HEALTHY) for mount in mounts]
    server.rate = faulty.RATE
    read_for(SECONDS, stormy)
    server.rate = 0
    over.set()
    replacing.join()
    # What was asked a moment before may still fail.
    time.sleep(LIMIT)
    last = [Readers(mount, store, HEALTHY + FAULTY) for mount in mounts]
    for readers in last:
        readers.read_each()
    print(*stormy, f"faults: {server.met}", sep="\n")
    wrong = [what for each in calm + stormy + last for what in each.wrong]
    assert not wrong, "\n".join(wrong[:MOST_TOLD])
    for mount, facts, bytes_before in zip(mounts, first, resident):
        wait_until(lambda: Facts(mount).is_like(facts, bytes_before), SETTLES, 1)
        assert Facts(mount).is_like(facts, bytes_before), f"{mount.store}: {facts}, now {Facts(mount)}"
        print(f"{mount.store}: {facts}, now {Facts(mount)}")
    asked = [len(each.asked) for each in (server, other)]
    time.sleep(QUIET)
    assert [len(each.asked) for each in (server, other)] == asked, "requests go on"
