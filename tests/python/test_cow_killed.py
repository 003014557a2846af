"""Mounts with --cow and commits that are killed, and upper folders that are full: nothing that was kept is lost.

ZARRFS_TEST_KILLS (12) says how often each is killed; with 200 it takes some minutes.
"""

import errno
import os
import random
import shutil
import subprocess
import threading
import time

import pytest

import mounting
import places
from mounting import Daemon
from mounting import zarrfs
from test_cow import tree

KILLS = int(os.environ.get("ZARRFS_TEST_KILLS", "12"))

# How much longer a commit runs than the one before it that was killed.
GROWTH = 1.25


@pytest.fixture
def upper(tmp_path):
    return tmp_path / "upper"


def make_store(path, count=40):
    """Makes a store of small keys."""
    for number in range(count):
        file = path / f"a/{number % 4}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"stored %d" % number * 50)
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    return path


class Writer:
    """A program that writes until the daemon is gone, and notes what each file may hold then: what was there when a
    call came back, and what the call that did not come back would have made of it."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.held = {}
        self.begun = {}
        self.calls = 0

    def run(self):
        try:
            while True:
                work = self.random.choice([self.write, self.write, self.rename, self.remove])
                work()
                self.begun = {}
                self.calls += 1
        except OSError as error:
            assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO), error

    def name(self):
        return f"{self.random.choice(['a/0', 'a/1', 'new', '.'])}/{self.random.randrange(12)}"

    def write(self):
        path = self.name()
        bytes_ = self.random.randbytes(self.random.randrange(1, 30_000))
        self.begun = {path: bytes_}
        with open(self.folder / path, "wb") as file:
            half = len(bytes_) // 2
            file.write(bytes_[:half])
            file.flush()
            file.write(bytes_[half:])
            if self.random.random() < 0.3:
                file.flush()
                os.fsync(file.fileno())
        self.held[path] = bytes_

    def rename(self):
        if not self.held:
            return
        old, new = self.random.choice(sorted(self.held)), self.name()
        if old == new or self.held[old] is None:
            return
        self.begun = {old: None, new: self.held[old]}
        os.rename(self.folder / old, self.folder / new)
        self.held[new], self.held[old] = self.held[old], None

    def remove(self):
        gone = [path for path, bytes_ in self.held.items() if bytes_ is not None]
        if gone and self.random.random() < 0.3:
            path = self.random.choice(sorted(gone))
            self.begun = {path: None}
            os.unlink(self.folder / path)
            self.held[path] = None

    def check(self):
        """Compares what is there with the notes."""
        for path in self.held.keys() | self.begun.keys():
            place = self.folder / path
            found = place.read_bytes() if place.exists() else None
            wanted = [self.held.get(path)] + ([self.begun[path]] if path in self.begun else [])
            if path in self.held or path in self.begun:
                # A new file that was never closed may be gone or empty.
                is_known = path in self.held
                assert found in wanted or not is_known, (path, found and found[:40])


def test_closed_files_outlive_a_killed_daemon(tmp_path, upper):
    store = make_store(tmp_path / "store")
    before = tree(store)
    for round in range(KILLS):
        with Daemon(store, "--cow", upper) as mount:
            (mount.path / "new").mkdir(exist_ok=True)
            if round:
                writer.folder = mount.path
                writer.check()
                writer.held = {
                    path: (mount.path / path).read_bytes() if (mount.path / path).exists() else None
                    for path in writer.held.keys() | writer.begun.keys()
                }
                writer.begun = {}
            else:
                writer = Writer(mount.path, 7)
            thread = threading.Thread(target=writer.run)
            thread.start()
            time.sleep(random.Random(round).uniform(0.02, 0.4))
            mount.process.kill()
            mount.process.wait()
            thread.join(30)
            assert not thread.is_alive(), "the writer waits for a daemon that is gone"
    assert writer.calls > 20 * KILLS, "too little was written to say anything"
    with Daemon(store, "--cow", upper) as mount:
        writer.folder = mount.path
        writer.check()
        wanted = tree(mount.path)
        assert tree(store) == before
        zarrfs("commit", mount.path)
        assert tree(store) == tree(mount.path) == wanted


def change_many(folder, count=150):
    """Changes, makes, renames and removes keys."""
    for number in range(count):
        file = folder / f"b/{number % 3}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"%d" % number * 500)
    shutil.rmtree(folder / "a/0")
    (folder / "a/1").rename(folder / "moved")
    for file in (folder / "a/2").iterdir():
        file.write_bytes(b"changed")
    (folder / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')


def commit_killed(place, environment, seed, *options):
    """Runs a commit and kills it after a while, until one comes to its end; returns how many were killed."""
    delays = random.Random(seed)
    for killed in range(100):
        process = subprocess.Popen(
            [mounting.program(), "commit", str(place), *options],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            # Longer each time, so that it ends soon.
            process.wait(delays.uniform(0.001, 0.05) * GROWTH**killed)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            continue
        assert process.returncode == 0, process.stderr.read()
        return killed
    raise AssertionError("no commit came to its end")


def test_a_commit_that_is_killed_is_run_again(tmp_path):
    killed, round = 0, 0
    while killed < KILLS:
        folder = tmp_path / str(round)
        store = make_store(folder / "store")
        with mounting.Mount(store, "--cow", folder / "upper") as mount:
            change_many(mount.path)
            wanted = tree(mount.path)
        killed += commit_killed(folder / "upper", None, round)
        assert tree(store) == wanted
        assert zarrfs("diff", folder / "upper").stdout == ""
        round += 1


def test_a_live_commit_whose_daemon_is_killed_is_run_again(tmp_path):
    for round in range(max(3, KILLS // 4)):
        folder = tmp_path / str(round)
        store = make_store(folder / "store")
        with Daemon(store, "--cow", folder / "upper") as mount:
            change_many(mount.path)
            wanted = tree(mount.path)
            command = [mounting.program(), "commit", str(mount.path)]
            commit = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(random.Random(round).uniform(0.005, 0.15))
            mount.process.kill()
            mount.process.wait()
            commit.wait(30)
        with Daemon(store, "--cow", folder / "upper") as mount:
            assert tree(mount.path) == wanted
            zarrfs("commit", mount.path)
            assert tree(store) == tree(mount.path) == wanted


def test_a_commit_to_a_bucket_that_is_killed_is_run_again(tmp_path):
    killed, round = 0, 0
    while killed < max(3, KILLS // 4):
        place = places.S3()
        place.upload(make_store(tmp_path / f"{round}/store"))
        upper = tmp_path / f"{round}/upper"
        with place.mount("--cow", str(upper)) as mount:
            change_many(mount.path, 60)
            wanted = objects(mount.path)
        environment = places.environment(place.keys)
        killed += commit_killed(upper, environment, round, *place.options)
        with place.mount() as mount:
            assert objects(mount.path) == wanted
        round += 1


def objects(folder):
    """Returns every file below a folder; SeaweedFS lists empty folders for a while, in which nothing is found."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            with open(file, "rb") as opened:
                found[os.path.relpath(file, folder)] = opened.read()
    return found


# A folder that is full.


def test_a_full_upper_folder_is_enospc_and_keeps_earlier_changes(tmp_path, small):
    store = make_store(tmp_path / "store")
    (store / "large").write_bytes(b"l" * (3 << 20))
    with Daemon(store, "--cow", small / "upper") as mount:
        (mount.path / "a/0/0").write_bytes(b"kept")
        (mount.path / "filler").write_bytes(b"f" * (2 << 20))
        before = tree(mount.path)
        with pytest.raises(OSError) as full:
            (mount.path / "too-large").write_bytes(b"x" * (6 << 20))
        assert full.value.errno == errno.ENOSPC
        (mount.path / "too-large").unlink()
        with pytest.raises(OSError) as full:
            with open(mount.path / "large", "r+b") as file:
                file.write(b"change")
        assert full.value.errno == errno.ENOSPC
        assert tree(mount.path) == before
        with pytest.raises(OSError) as full:
            (mount.path / "a/0/0").write_bytes(b"x" * (6 << 20))
        assert full.value.errno == errno.ENOSPC
        assert tree(mount.path) == before
        (mount.path / "filler").unlink()
        del before["filler"]
        assert tree(mount.path) == before
        (mount.path / "after").write_bytes(b"room again")
        with open(mount.path / "large", "r+b") as file:
            file.write(b"change")
        wanted = tree(mount.path)
        assert wanted["large"] != before["large"]
        zarrfs("commit", mount.path)
        assert tree(store) == tree(mount.path) == wanted
