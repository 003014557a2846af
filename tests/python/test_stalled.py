"""Stores whose keys stall harm their own readers only, and these can be ended."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr

import layout
import stalling
from mounting import Daemon, lazy_unmount, wait_until

# What a signal is answered in at most, in seconds.
ENDS = 2
# How long each is waited for that must not end meanwhile.
STAYS = 3
# What may pass before something counts as hanging; not what it ought to take.
HANGS = 60
CHUNK = 1 << 20


@pytest.fixture
def server(tmp_path):
    """Serves a store with the arrays `healthy`, `stalled` and `silent`, each of four chunks, and the latter two with one."""
    store = zarr.create_group(tmp_path / "s.zarr")
    for name, count in [("healthy", 4), ("stalled", 4), ("silent", 4), ("stalled_1", 1), ("silent_1", 1)]:
        values = np.ones(count * CHUNK, "u1")
        store.create_array(name, data=values, chunks=CHUNK, compressors=None)
    with stalling.serving(tmp_path / "s.zarr", CHUNK) as server:
        yield server


def place(server, kind):
    """Returns how the store is mounted: as a folder of a web server, or as a bucket of S3."""
    if kind == "s3":
        return [f"s3://{stalling.BUCKET}", "--endpoint", server.url, "--anon"]
    return [server.url]


@pytest.fixture
def mount(server):
    """Mounts it with the usual time limit."""
    with Daemon(server.url) as mount:
        yield mount


def hang(server, command, **options):
    """Starts a program that hangs on a stalled key, and waits until it does."""
    before = server.stalled
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    assert wait_until(lambda: server.stalled > before, HANGS)
    # Older than the requests whose callers are not looked at.
    time.sleep(1)
    assert process.poll() is None
    return process


def end_of(process, limit):
    """Returns the status of a program and what it said, and how long it took; kills it after `limit` seconds."""
    started = time.monotonic()
    try:
        _, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, said.decode(), time.monotonic() - started


def files(mount, arrays=("stalled", "silent")):
    """Returns files that hang: while they are read, and when they are opened or looked up."""
    keys = [mount.path / name / "c/0" for name in arrays]
    return keys + [layout.decoded(mount.files, mount.store, name, "npy") for name in arrays]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_a_reader(server, mount, name):
    ending = signal.Signals[name]
    for file in files(mount):
        process = hang(server, ["cat", file])
        process.send_signal(ending)
        status, _, took = end_of(process, HANGS)
        assert status == -ending
        assert took < ENDS


def test_a_signal_that_is_handled_ends_a_read(server, mount):
    program = "import sys; open(sys.argv[1], 'rb', buffering=0).read(1 << 20)"
    for file in files(mount):
        process = hang(server, [sys.executable, "-c", program, file])
        process.send_signal(signal.SIGINT)
        _, said, took = end_of(process, HANGS)
        assert "KeyboardInterrupt" in said
        assert took < ENDS


def ignore():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def block():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


@pytest.mark.parametrize("prepare", [ignore, block])
def test_a_signal_that_is_not_taken_ends_nothing(server, mount, prepare):
    process = hang(server, ["cat", mount.path / "stalled/c/0"], preexec_fn=prepare)
    process.send_signal(signal.SIGINT)
    time.sleep(STAYS)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    status, _, took = end_of(process, HANGS)
    assert status == -signal.SIGTERM
    assert took < ENDS


def test_readers_end_after_the_mount_is_taken_away(server):
    limit = 5
    with Daemon(server.url, "--timeout", f"{limit}s") as mount:
        interrupted, left = (hang(server, ["cat", mount.path / f"stalled/c/0"]) for _ in range(2))
        lazy_unmount(mount.path)
        interrupted.send_signal(signal.SIGINT)
        status, _, took = end_of(interrupted, HANGS)
        assert status == -signal.SIGINT
        assert took < ENDS
        status, _, took = end_of(left, HANGS)
        assert status == 1
        assert took < limit + 1
        mount.process.wait(HANGS)


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_request_that_nobody_waits_for_ends(server, kind):
    with Daemon(*place(server, kind)) as mount:
        # What is fetched ahead, which is no program's request, has a time limit of its own: these have no second chunk.
        for file in files(mount, ("stalled_1", "silent_1")):
            process = hang(server, ["cat", file])
            process.kill()
            process.communicate()
            assert wait_until(lambda: server.stalled == 0, HANGS / 4), file
