"""The log lines of requests: one for each, with its path, its range and what it failed by."""

import ctypes
import errno
import json
import os
import re

import numpy as np
import pytest
import zarr

import mounting

LINE = re.compile(r"(?P<op>\w+) path=(?P<path>\"(?:[^\"\\]|\\.)*\")(?P<rest>.*) microseconds=(?P<micros>\d+) errno=(?P<errno>\d+)$")


@pytest.fixture
def made(tmp_path):
    store = tmp_path / "a.zarr"
    array = zarr.create_array(store, name="x", shape=(64, 64), chunks=(16, 64), dtype="int32", compressors=[zarr.codecs.ZstdCodec()])
    array[:] = np.arange(64 * 64).reshape(64, 64)
    (store / "x/c/3/0").write_bytes(b"no zstd")
    return store


@pytest.fixture
def logging(mounted, monkeypatch, tmp_path):
    """Mounts with the lines switched on; returns the mount, and a function that waits until each pattern has a line.

    A line is written after its answer, so a test waits for every line that it looks at.
    """
    log = tmp_path / "log"

    def start(store, *options):
        monkeypatch.setenv("RUST_LOG", "zarrfs::access=trace")
        return mounted(store, "--log", log, *options)

    def wait_for(*patterns):
        mounting.wait_until(lambda: all(re.search(pattern, log.read_text()) for pattern in patterns))
        found = (LINE.search(line) for line in log.read_text().splitlines())
        return [line.groupdict() for line in found if line]

    return start, wait_for


def test_each_request_is_logged_as_a_line(made, logging):
    start, wait_for = logging
    mount = start(made)
    path = mount.files / "x/x.raw"
    with open(path, "rb", buffering=0) as file:
        assert len(file.read(4096)) == 4096
        with pytest.raises(OSError):
            os.pread(file.fileno(), 4096, 3 * 4096)
    assert not os.path.exists(mount.path / "odd \x1b name")
    os.listdir(mount.path / "x")
    lines = wait_for(r"open path=.*x\.raw", r"read path=.*errno=0\n", r"read path=.*errno=5\n", r"lookup path=.*odd .*errno=2\n")
    shown = '"/.zarrfs/files/x/x.raw"'
    opened = [line for line in lines if line["op"] == "open" and line["path"] == shown]
    assert f"pid={os.getpid()}" in opened[0]["rest"] and opened[0]["errno"] == "0"
    reads = [line for line in lines if line["op"] == "read" and line["path"] == shown]
    assert any("offset=0 length=" in line["rest"] for line in reads)
    assert {line["errno"] for line in reads} == {"0", "5"}
    missing = [line for line in lines if "odd" in line["path"]]
    assert missing[0]["path"] == r'"/odd \u{1b} name"'
    assert missing[0]["op"] == "lookup" and missing[0]["errno"] == "2"


def test_a_rename_is_logged_with_both_names(made, logging, tmp_path):
    start, wait_for = logging
    mount = start(made, "--cow", tmp_path / "upper")
    os.rename(mount.path / "x/c/0/0", mount.path / "x/other")
    with open(mount.path / "x/new", "wb") as file:
        file.write(b"123")
    lines = wait_for(r"write path=.*errno=0\n", r"rename path=.*errno=0\n")
    renamed = [line for line in lines if line["op"] == "rename"][0]
    assert renamed["path"] == '"/x/c/0/0"' and 'to="/x/other"' in renamed["rest"]
    written = [line for line in lines if line["op"] == "write"][0]
    assert written["path"] == '"/x/new"' and "offset=0 length=3" in written["rest"]


def test_a_refused_request_is_logged(made, logging, tmp_path):
    start, wait_for = logging
    mount = start(made, "--cow", tmp_path / "upper")
    whiteout = 4
    paths = [os.fsencode(mount.path / name) for name in ("zarr.json", "other")]
    assert ctypes.CDLL(None).renameat2(-100, paths[0], -100, paths[1], whiteout) == -1
    lines = wait_for(r"rename path=.*errno=\d+\n")
    renamed = [line for line in lines if line["op"] == "rename"][0]
    assert int(renamed["errno"]) == errno.EINVAL


def test_without_the_filter_no_request_is_logged(made, mounted, tmp_path):
    log = tmp_path / "log"
    mount = mounted(made, "--log", log, "-v")
    os.listdir(mount.path / "x")
    assert not any(map(LINE.search, log.read_text().splitlines()))


def test_a_small_file_takes_no_read_requests_after_its_open(made, logging):
    """Decoded chunks in memory need no request for their lengths, and none for their bytes, at the first open."""
    start, wait_for = logging
    mount = start(made)
    values = np.arange(64 * 64, dtype="int32").reshape(64, 64)
    with open(mount.files / "x/x.raw", "rb", buffering=0) as file:
        assert file.read(3 * 4096) == values[:48].tobytes()
    chunks = [f"/.zarrfs/v2/x/{number}.0" for number in range(3)]
    for number, chunk in enumerate(chunks):
        assert (mount.path / chunk[1:]).read_bytes() == values[number * 16 :][:16].tobytes()
    lines = wait_for(*(f"release path=.*{re.escape(chunk)}" for chunk in chunks))
    operations = [{line["op"] for line in lines if line["path"] == f'"{chunk}"'} for chunk in chunks]
    assert all("open" in done and "read" not in done for done in operations), lines
    # Attributes are valid for a second: a slow machine may ask for some again.
    assert any("getattr" not in done for done in operations), lines


def test_an_open_alone_decodes_nothing(mounted, tmp_path):
    store = tmp_path / "a.zarr"
    array = zarr.create_array(store, name="x", shape=(64, 1024), chunks=(1, 1024), dtype="int32", compressors=[zarr.codecs.ZstdCodec()])
    array[:] = np.arange(64 * 1024).reshape(64, 1024)
    mount = mounted(store)
    folder = mount.path / ".zarrfs/v2/x"
    decoded = lambda: json.loads((mount.path / ".zarrfs/stats.json").read_text())["decoded_chunks"]
    for number in range(16):
        os.close(os.open(folder / f"{number}.0", os.O_RDONLY))
    assert decoded() == 0
    for number in range(16):
        assert (folder / f"{number}.0").read_bytes() == array[number].tobytes()
    assert decoded() >= 16
