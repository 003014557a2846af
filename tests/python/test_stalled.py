"""Stores whose keys stall harm their own readers only, and these can be ended."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import zarr

import layout
import losing
import stalling
from mounting import Daemon, lazy_unmount, wait_until

# What a signal is answered in at most, in seconds.
ENDS = 2
# How long each is waited for that must not end meanwhile.
STAYS = 3
# What may pass before something counts as hanging; not what it ought to take.
HANGS = 60
CHUNK = 1 << 20
# The chunks of an array of many, and their length.
MANY = 100
SMALL = 4 << 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Makes a store with arrays that are healthy, that stall, break off or do not answer: of four chunks, of one, and of
    many small ones."""
    folder = tmp_path_factory.mktemp("stalled") / "s.zarr"
    store = zarr.create_group(folder)
    for name in ("healthy", "stalled", "silent", "broken"):
        for end, count, chunk in [("", 4, CHUNK), ("_1", 1, CHUNK), ("_many", MANY, SMALL)]:
            values = np.ones(count * chunk, "u1")
            store.create_array(name + end, data=values, chunks=chunk, compressors=None)
    return folder


@pytest.fixture
def server(folder):
    with stalling.serving(folder) as server:
        yield server


def place(server, kind):
    """Returns how the store is mounted: as a folder of a web server, or as a bucket of S3. `server` is anything with a
    URL."""
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
    before = server.began
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    assert wait_until(lambda: server.began > before, HANGS)
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


def test_a_signal_ends_a_reader(server, mount):
    # A request that still runs is not made again: each has a key of its own.
    keys = [mount.path / name / "c" / str(number) for number in range(2) for name in ("stalled", "silent")]
    names = ["SIGTERM", "SIGQUIT", "SIGHUP", "SIGKILL"] + ["SIGINT"] * 4
    for file, name in zip(keys + files(mount), names, strict=True):
        ending = signal.Signals[name]
        process = hang(server, ["cat", file])
        process.send_signal(ending)
        status, _, took = end_of(process, HANGS)
        assert status == -ending
        assert took < ENDS


def test_a_signal_that_is_handled_ends_a_read(server, mount):
    program = "import sys; open(sys.argv[1], 'rb', buffering=0).read(1 << 20)"
    for file in files(mount, ["stalled"]):
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
def test_an_ignored_signal_does_not_end_a_read(server, mount, prepare):
    process = hang(server, ["cat", mount.path / "stalled/c/0"], preexec_fn=prepare)
    process.send_signal(signal.SIGINT)
    time.sleep(STAYS)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    status, _, took = end_of(process, HANGS)
    assert status == -signal.SIGTERM
    assert took < ENDS


def test_readers_end_after_a_lazy_unmount(server):
    limit = 5
    with Daemon(server.url, "--timeout", f"{limit}s") as mount:
        interrupted, left = (
            hang(server, ["cat", mount.path / f"stalled/c/{number}"]) for number in range(2)
        )
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
def test_a_request_of_a_killed_reader_ends(server, kind):
    with Daemon(*place(server, kind)) as mount:
        # What is fetched ahead, which is no program's request, has a time limit of its own: these have no second chunk.
        for file in files(mount, ("stalled_1", "silent_1")):
            process = hang(server, ["cat", file])
            process.kill()
            process.communicate()
            assert wait_until(lambda: server.stalled == 0, HANGS / 4), file


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_read_of_a_store_that_stalls_ends_in_time(server, kind):
    limit = 1
    arrays = ("stalled", "silent", "broken")
    with Daemon(*place(server, kind), "--timeout", f"{limit}s") as mount:
        # One after the other, what was asked for ahead among them.
        keys = [mount.path / f"{name}_many/c/{number}" for name in arrays for number in range(4)]
        for file in files(mount, arrays) + keys:
            started = time.monotonic()
            done = subprocess.run(["cat", file], capture_output=True, text=True, timeout=HANGS)
            assert (done.returncode, "Input/output error" in done.stderr) == (1, True)
            assert time.monotonic() - started < limit + 1, file


class StallsInOneChunk(stalling.Stalls):
    """Has the first chunk of `mixed` stall, and no other."""

    def is_of(self, prefix):
        return prefix == "stalled" and self.key() == "mixed/c/0"


def test_a_changed_file_is_opened_while_a_read_of_it_hangs(tmp_path):
    store = zarr.create_group(tmp_path / "s.zarr")
    values = np.repeat([1, 2], CHUNK).astype("u1")
    store.create_array("mixed", data=values, chunks=CHUNK, compressors=None)
    answering = partial(stalling.StallingServer, answers=StallsInOneChunk)
    options = ["--metadata-ttl", "0s", "--timeout", f"{HANGS}s"]
    with stalling.serving(tmp_path / "s.zarr", answering) as server, Daemon(server.url, *options) as mount:
        file = layout.decoded(mount.files, mount.store, "mixed", "raw")
        with open(file, "rb", buffering=0) as opened:
            assert set(os.pread(opened.fileno(), CHUNK, CHUNK)) == {2}
        process = hang(server, ["head", "-c", "1", file])
        (tmp_path / "s.zarr/mixed/c/1").write_bytes(bytes([3]) * CHUNK)
        changed = time.time() + 5
        os.utime(tmp_path / "s.zarr/mixed/c/1", (changed, changed))
        assert set((mount.path / "mixed/c/1").read_bytes()) == {3}
        started = time.monotonic()
        with open(file, "rb", buffering=0) as opened:
            assert set(os.pread(opened.fileno(), CHUNK, CHUNK)) == {3}
            assert time.monotonic() - started < HANGS / 4
        process.kill()
        process.communicate()


@contextmanager
def hung(server, files):
    """Runs programs that hang on files; goes on once all of them have done so for a while."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    programs = [subprocess.Popen(["cat", file], **quiet) for file in files]
    try:
        assert wait_until(lambda: server.stalled >= len(files), HANGS)
        time.sleep(ENDS)
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


@pytest.mark.parametrize("kind", ["http", "s3"])
@pytest.mark.parametrize("name", ["stalled_many", "silent_many"])
def test_hanging_programs_do_not_delay_others(server, kind, name):
    with Daemon(*place(server, kind)) as mount:
        files = [mount.path / name / "c" / str(number) for number in range(64)]
        with hung(server, files):
            started = time.monotonic()
            for number in range(MANY):
                assert (mount.path / f"healthy_many/c/{number}").read_bytes() == b"\1" * SMALL
            decoded = layout.decoded(mount.files, mount.store, "healthy", "npy")
            assert np.load(decoded).all()
            assert len(os.listdir(mount.path / "healthy_1")) == 2
            # Nothing of it has waited for one of the programs that hang.
            assert time.monotonic() - started < HANGS / 4


def test_the_errors_are_readable_while_programs_hang(server):
    with Daemon(server.url) as mount:
        arrays = ("stalled_many", "silent_many")
        files = [mount.path / name / "c" / str(number) for name in arrays for number in range(MANY)]
        with hung(server, files):
            started = time.monotonic()
            for name in ("errors", "stats.json", "mount.json"):
                subprocess.run(["cat", mount.path / ".zarrfs" / name], check=True, timeout=HANGS)
            subprocess.run(["ls", "-l", mount.path / ".zarrfs"], check=True, timeout=HANGS)
            assert time.monotonic() - started < ENDS


def read_some(mount, numbers):
    """Reads healthy chunks by programs of their own, at the same time."""
    files = [mount.path / f"healthy_many/c/{number}" for number in numbers]
    programs = [subprocess.Popen(["cmp", file, "-"], stdin=subprocess.PIPE) for file in files]
    for program in programs:
        program.communicate(b"\1" * SMALL, timeout=HANGS)
    assert [program.returncode for program in programs] == [0] * len(files)


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_reads_go_on_after_connections_were_lost(server, kind):
    # A second request comes after 5 s, half of the bound below: the rest is for a busy machine.
    limit, patience = 40, 5
    with losing.losing(server.server_address[1]) as proxy:
        with Daemon(*place(proxy, kind), "--timeout", f"{limit}s") as mount:
            # Several connections are kept.
            read_some(mount, range(16))
            proxy.lose()
            started = time.monotonic()
            read_some(mount, [20])
            assert time.monotonic() - started < limit / 4
            # None of the next reads waits for a connection that was lost.
            for number in range(21, 29):
                started = time.monotonic()
                read_some(mount, [number])
                assert time.monotonic() - started < patience
            assert layout.decoded(mount.files, mount.store, "healthy_many", "raw").read_bytes() == b"\1" * MANY * SMALL
