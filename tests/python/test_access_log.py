"""The access log of a mount: a line for each request, and none that holds up a reader."""

import ctypes
import errno
import json
import os
import subprocess
import time

import numpy as np
import pytest
import zarr

import mounting


@pytest.fixture
def made(tmp_path):
    store = tmp_path / "a.zarr"
    array = zarr.create_array(store, name="x", shape=(64, 64), chunks=(16, 64), dtype="int32", compressors=[zarr.codecs.ZstdCodec()])
    array[:] = np.arange(64 * 64).reshape(64, 64)
    (store / "x/c/3/0").write_bytes(b"no zstd")
    return store


def wait_for(log, *wanted):
    """Waits until there is a line of each kind: they come in the order in which their threads get to it."""
    lines = []

    def came():
        lines[:] = [json.loads(line) for line in log.read_text().splitlines()]
        return all(any(map(each, lines)) for each in wanted)

    mounting.wait_until(came)
    return lines


def is_a(operation):
    return lambda line: line["op"] == operation


def test_each_request_is_a_line(made, mounted, tmp_path):
    log = tmp_path / "access.log"
    mount = mounted(made, "--access-log", log)
    path = mount.files / "x/x.raw"
    started = time.time()
    file = os.open(path, os.O_RDONLY)
    assert len(os.pread(file, 4096, 0)) == 4096
    with pytest.raises(OSError):
        os.pread(file, 4096, 3 * 4096)
    os.close(file)
    assert not os.path.exists(mount.path / "odd \x1b name")
    lines = wait_for(log, lambda line: line["path"].endswith("odd \x1b name"))
    shown = "/.zarrfs/files/x/x.raw"
    opened = [line for line in lines if line["op"] == "open" and line["path"] == shown]
    assert opened and opened[0]["pid"] == os.getpid() and "errno" not in opened[0]
    reads = [line for line in lines if line["op"] == "read" and line["path"] == shown]
    # The kernel may ask for both at once, and the one that fails may be answered first.
    good, bad = ([line for line in reads if ("errno" in line) is failed][0] for failed in (False, True))
    assert good["offset"] == 0 and good["length"] >= 4096 and good["chunks"] >= 1 and good["hits"] <= good["chunks"]
    assert bad["errno"] == 5 and bad["microseconds"] >= 0
    missing = [line for line in lines if line["path"].endswith("odd \x1b name")]
    assert missing[0]["op"] == "lookup" and missing[0]["errno"] == 2
    stamp = time.strftime("%Y-%m-%dT%H", time.gmtime(started))
    assert opened[0]["time"].startswith(stamp) and opened[0]["time"].endswith("Z")


def test_hits_are_told(made, mounted, tmp_path):
    log = tmp_path / "access.log"
    mount = mounted(made, "--access-log", log)
    for form in ("x.raw", "x.npy"):
        with open(mount.files / "x" / form, "rb") as file:
            file.read(8192)
    lines = wait_for(log, lambda line: line["op"] == "read" and line["path"].endswith("x.npy"))
    last = [line for line in lines if line["op"] == "read" and line["path"].endswith("x.npy")][0]
    assert last["hits"] >= 1


def test_changes_have_both_names(made, mounted, tmp_path):
    log = tmp_path / "access.log"
    mount = mounted(made, "--access-log", log, "--cow", tmp_path / "upper")
    os.rename(mount.path / "x/c/0/0", mount.path / "x/other")
    with open(mount.path / "x/new", "wb") as file:
        file.write(b"123")
    lines = wait_for(log, is_a("write"), is_a("rename"))
    renamed = [line for line in lines if line["op"] == "rename"][0]
    assert (renamed["path"], renamed["to"]) == ("/x/c/0/0", "/x/other")
    written = [line for line in lines if line["op"] == "write"][0]
    assert (written["path"], written["offset"], written["length"]) == ("/x/new", 0, 3)


def test_what_is_refused_is_a_line(made, mounted, tmp_path):
    log = tmp_path / "access.log"
    mount = mounted(made, "--access-log", log, "--cow", tmp_path / "upper")
    with pytest.raises(OSError):
        os.setxattr(mount.path / "zarr.json", "system.none", b"1")
    whiteout = 4
    paths = [os.fsencode(mount.path / name) for name in ("zarr.json", "other")]
    assert ctypes.CDLL(None).renameat2(-100, paths[0], -100, paths[1], whiteout) == -1
    os.listdir(mount.path / "x")
    lines = wait_for(log, *map(is_a, ("setxattr", "rename", "releasedir")))
    refused = {line["op"]: line["errno"] for line in lines if "errno" in line}
    assert (refused["setxattr"], refused["rename"]) == (errno.EOPNOTSUPP, errno.EINVAL)
    renamed = [line for line in lines if line["op"] == "rename"][0]
    assert (renamed["path"], renamed["to"]) == ("/zarr.json", "/other")


def test_a_full_disk_loses_lines_and_no_read(made, mounted, small):
    log = small / "access.log"
    with open(small / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError:
            pass
    mount = mounted(made, "--access-log", log)
    for _ in range(3):
        assert len((mount.path / "x/zarr.json").read_bytes()) > 0
    stats = lambda: json.loads((mount.path / ".zarrfs/stats.json").read_text())
    mounting.wait_until(lambda: stats()["access_dropped_lines"] > 0)
    os.unlink(small / "ballast")
    os.listdir(mount.path)

    def told():
        os.listdir(mount.path / "x")
        return any('"dropped"' in line for line in log.read_text().splitlines())

    mounting.wait_until(told)


def test_it_lies_outside_of_what_is_mounted(made, tmp_path):
    folder = tmp_path / "mount"
    folder.mkdir()
    for log in (folder / "log", made / "log"):
        command = [mounting.program(), "mount", "--access-log", log, made, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2 and "--access-log lies in the" in done.stderr, done
