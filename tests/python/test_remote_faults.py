"""Servers that fail: errors one time in ten, and a server that is killed while it is read from and comes back."""

import errno
import signal
import subprocess
import threading

import numpy as np
import pytest
import zarr

import corpus
import layout
import needs
import places
from mounting import Daemon, wait_until
from servers.hadro import Hadro
from servers.programs import Absent

# One store of each dialect, sharded chunks and consolidated metadata among them.
SOME = [
    "zarr-python-2.13-v2/dtypes.zarr",
    "zarr-python-3.0/layout.zarr",
    "zarr-python-3.0/sharding.zarr",
    "drafts-from-seeds/main_2019.zr3",
    "drafts-from-seeds/main_2020.zr3",
    "drafts-from-seeds/main_2022.zr3",
]
# Of their arrays, one in so many.
EVERY = 3
TIMEOUT = 5
# What may pass before something counts as hanging; not what it ought to take.
HANGS = 60


@pytest.fixture
def hadro(tmp_path):
    """Starts hadro over a folder of buckets with `hadro(data, **faults)`; stops it at the end."""
    started = []

    def start(data, **faults):
        try:
            server = Hadro(tmp_path / "servers", data, **faults)
        except Absent:
            needs.require("hadro", False, "servers")
        started.append(server)
        return server.__enter__()

    yield start
    for server in started:
        server.stop()


class Bucket(places.Place):
    """A bucket of a hadro."""

    def __init__(self, server, name):
        self.url = f"s3://{name}"
        self.options = ["--endpoint", server.url, "--anon"]


def test_reads_succeed_if_one_request_in_ten_fails(corpus_folder, hadro):
    server = hadro(corpus_folder.parent, error_rate=0.1, latency_ms=50, fault_seed=1)
    place = Bucket(server, corpus_folder.name)
    stores = corpus.by_store(corpus.entries())
    bad = []
    for name in SOME:
        with place.mount(under=name) as mount:
            chosen = stores[name][::EVERY]
            results = [corpus.check(entry, mount.files, mount.store) for entry in chosen]
        bad += [result for result in results if result.status in ("wrong", "error")]
    assert not bad
    statuses = [status for _, _, status in server.requests()]
    assert statuses.count(503) > len(SOME), "hardly any faults were met"


@pytest.fixture
def slow(tmp_path, hadro):
    """Returns a hadro that needs minutes for the array `big`, its bucket, and what the array `small` holds."""
    data = tmp_path / "data"
    store = zarr.create_group(data / "bucket" / "made.zarr")
    noise = np.random.default_rng(1).integers(0, 255, 32 << 20, "u1")
    options = {"chunks": 8 << 20, "compressors": None}
    store.create_array("big", data=noise, **options)
    store.create_array("small", data=np.arange(1000), chunks=100)
    server = hadro(data, bandwidth_mbps=1)
    return server, Bucket(server, "bucket"), np.arange(1000)


class Reading(threading.Thread):
    """Reads a file from its start in the background; `error` is what came of it."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.error = None
        self.start()

    def run(self):
        try:
            self.path.read_bytes()
        except OSError as error:
            self.error = error


def ls(folder):
    """Lists a folder with attributes in a process that can be given up."""
    done = subprocess.run(["ls", "-l", folder], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_that_is_killed_and_comes_back(slow):
    server, place, content = slow
    with place.mount("--timeout", f"{TIMEOUT}s", under="made.zarr", kind=Daemon) as mount:
        small = layout.decoded(mount.files, mount.store, "small", "npy")
        known = [mount.path, mount.path / "small", mount.files, mount.files / "small"]
        listings = [ls(folder) for folder in known]
        reading = Reading(layout.decoded(mount.files, mount.store, "big", "npy"))
        before = len(server.requests())
        stored = Reading(mount.path / "big/c/3")
        assert wait_until(lambda: len(server.requests()) > before, TIMEOUT)
        server.stop()
        # While both still wait, or have failed already, what is known is there.
        assert [ls(folder) for folder in known] == listings
        for reader in (reading, stored):
            reader.join(HANGS)
            assert not reader.is_alive()
            assert reader.error is not None and reader.error.errno == errno.EIO
        server.faults = {}
        with server:
            assert wait_until(lambda: same(small, content), HANGS)
            # What was asked a moment before may still fail.
            assert wait_until(lambda: size(mount.path / "big/c/3") == 8 << 20, HANGS)
        assert mount.process.poll() is None


def size(path):
    """Returns the length of a file; nothing if it cannot be told."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def same(path, content):
    """Says whether a file reads, and as it should."""
    try:
        return np.array_equal(np.load(path), content)
    except OSError:
        return False


def test_a_server_that_stops_answering(slow):
    server, place, _ = slow
    with place.mount("--timeout", f"{TIMEOUT}s", under="made.zarr") as mount:
        listing = ls(mount.path)
        server.send(signal.SIGSTOP)
        reader = Reading(mount.path / "big/c/3")
        assert ls(mount.path) == listing
        reader.join(HANGS)
        assert reader.error is not None and reader.error.errno == errno.EIO
        server.send(signal.SIGCONT)
        assert wait_until(lambda: (mount.path / "small/zarr.json").read_bytes(), HANGS)
