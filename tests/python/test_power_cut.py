"""The power is cut: what was synced is there, and nothing torn shows or is committed.

The upper folder is on an ext4 file system of its own, in a file. It is cut off at one instant, without a flush
(EXT4_IOC_SHUTDOWN): what the disk does not have then is lost. It commits names every second and bytes half a minute
later, so that a new name without its bytes is usual.

ZARRFS_TEST_CUTS (5) says how often the power is cut; scripts/stress does so 100 times.
"""

import fcntl
import mmap
import os
import random
import struct
import subprocess
import threading
import time

import numpy as np
import pytest
import zarr

import mounting
import needs
from mounting import Daemon, zarrfs

CUTS = int(os.environ.get("ZARRFS_TEST_CUTS", "5"))
SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = 2
KEYS = [f"a/c/{number}" for number in range(12)]
ELEMENTS = 4096


class Disk:
    """An ext4 file system in a file, mounted; cut off by `cut`, started again by `start`."""

    def __init__(self, folder):
        self.image, self.path = folder / "image", folder / "disk"
        self.path.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(96 << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        self.mount()

    def mount(self):
        options = "loop,commit=1,noauto_da_alloc"
        subprocess.run(["mount", "-o", options, self.image, self.path], check=True)

    def cut(self):
        disk = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(disk, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        os.close(disk)

    def start(self):
        """Mounts what the disk has, as a copy: the file system that was cut off lives on, and gives EIO, as long as a
        mount namespace of another test has it, too."""
        self.unmount()
        copy = self.image.with_suffix(".copy")
        subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
        self.image.unlink()
        self.image = copy
        self.mount()

    def unmount(self):
        subprocess.run(["umount", "-l", self.path], check=True)


@pytest.fixture
def disk(tmp_path):
    needs.require("root", os.geteuid() == 0)
    if not os.path.exists("/dev/loop-control") or needs.is_named("loop"):
        needs.skip("loop")
    disk = Disk(tmp_path)
    yield disk
    disk.unmount()


def content(key, number):
    """Returns what a key holds as its number N: no part of it is another one's."""
    line = b"%s %d\n" % (key.encode(), number)
    return line * (1 + number * 7919 % 3000)


class Writer(threading.Thread):
    """A program that writes its own keys until the power is cut. `synced` has the number of each key that is known to be
    on the disk, `newest` the one that was written last."""

    def __init__(self, folder, keys, seed):
        super().__init__()
        self.folder, self.keys, self.random = folder, keys, random.Random(seed)
        self.synced = dict.fromkeys(keys, 0)
        self.newest = dict.fromkeys(keys, 0)

    def run(self):
        try:
            while True:
                self.random.choice([self.write, self.write, self.replace])(self.random.choice(self.keys))
        except OSError:
            pass

    def begin(self, key):
        self.newest[key] += 1
        return self.newest[key], content(key, self.newest[key])

    def write(self, key):
        number, bytes_ = self.begin(key)
        syncs = self.random.random() < 0.2
        with open(self.folder / key, "wb", buffering=0) as file:
            file.write(bytes_)
            if syncs:
                os.fsync(file.fileno())
                self.synced[key] = number

    def replace(self, key):
        """Writes another file and gives it the key, as zarr-python does, without a sync; or syncs the folder."""
        number, bytes_ = self.begin(key)
        new = self.folder / f"{key}.{self.random.randrange(1 << 30)}.partial"
        new.write_bytes(bytes_)
        os.rename(new, self.folder / key)
        if self.random.random() < 0.2:
            folder = os.open(new.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self.synced[key] = number

    def check(self, folder):
        for key in self.keys:
            found = (folder / key).read_bytes()
            possible = {content(key, number): number for number in range(self.synced[key], self.newest[key] + 1)}
            assert found in possible, (key, self.synced[key], self.newest[key], len(found), found[:60])


class ElementWriter(threading.Thread):
    """A program that writes one element after the other of the decoded array, by pwrite or by a map."""

    def __init__(self, file, seed):
        super().__init__()
        self.file, self.random = file, random.Random(seed)
        self.synced, self.newest = {}, {}

    def run(self):
        number = 0
        try:
            file = os.open(self.file, os.O_RDWR)
            try:
                with mmap.mmap(file, 0) as pages:
                    while True:
                        number += 1
                        self.write(file, pages, number)
            finally:
                os.close(file)
        except (OSError, ValueError):
            pass

    def write(self, file, pages, number):
        element = self.random.randrange(ELEMENTS)
        self.newest[element] = number
        if number % 2:
            os.pwrite(file, number.to_bytes(8, "little"), 128 + 8 * element)
        else:
            pages[128 + 8 * element : 136 + 8 * element] = number.to_bytes(8, "little")
        if number % 8 == 0:
            pages.flush()
            os.fsync(file)
            self.synced.update(self.newest)
        time.sleep(0.001)

    def check(self, array):
        for element, newest in self.newest.items():
            synced = self.synced.get(element, 0)
            assert synced <= array[element] <= newest, (element, synced, newest, array[element])


def make_store(path):
    root = zarr.create_group(path, zarr_format=3)
    root.create_array("e", data=np.zeros(ELEMENTS, "i8"), chunks=(512,))
    (path / "a/c").mkdir(parents=True)
    for key in KEYS:
        (path / key).write_bytes(content(key, 0))
    return path


@pytest.mark.parametrize("cut", range(CUTS))
def test_a_power_cut_loses_no_synced_data_and_shows_no_torn_data(tmp_path, disk, cut):
    store, upper = make_store(tmp_path / "store.zarr"), disk.path / "upper"
    draw = random.Random(cut)
    with Daemon(store, "--cow", upper) as mount:
        writers = [Writer(mount.path, KEYS[part::3], 3 * cut + part) for part in range(3)]
        elements = ElementWriter(mount.files / "e/e.npy", cut)
        for writer in [*writers, elements]:
            writer.start()
        time.sleep(draw.uniform(0.5, 4))
        disk.cut()
        mount.process.kill()
        mount.process.wait()
        mounting.lazy_unmount(mount.path)
        for writer in [*writers, elements]:
            writer.join(30)
            assert not writer.is_alive()
    disk.start()
    zarrfs("status", upper)
    with mounting.Mount(store, "--cow", upper) as mount:
        for writer in writers:
            writer.check(mount.path)
        elements.check(zarr.open_array(mount.path / "e", mode="r")[:])
        zarrfs("commit", mount.path)
    for writer in writers:
        assert max(writer.newest.values()) > 3, "too little was written to say anything"
        writer.check(store)
    elements.check(zarr.open_array(store / "e", mode="r")[:])
    assert len(elements.synced) > 8


@pytest.mark.parametrize("synced", [KEYS[0], ".zarrfs/files/e"])
def test_a_sync_through_any_handle_syncs_the_file(tmp_path, disk, synced):
    """`sync FILE` opens the file for reading; the sync of a folder makes the disk keep its files."""
    store, upper = make_store(tmp_path / "store.zarr"), disk.path / "upper"
    with Daemon(store, "--cow", upper) as mount:
        for key in KEYS:
            (mount.path / key).write_bytes(content(key, 1))
        (mount.files / "e/attributes.json").write_text('{"synced": true}')
        subprocess.run(["sync", mount.path / synced], check=True)
        disk.cut()
        mount.process.kill()
        mount.process.wait()
    disk.start()
    with mounting.Mount(store, "--cow", upper) as mount:
        for key in [synced] if synced in KEYS else KEYS:
            assert (mount.path / key).read_bytes() == content(key, 1)
        if synced not in KEYS:
            assert zarr.open_array(mount.path / "e", mode="r").attrs["synced"]
