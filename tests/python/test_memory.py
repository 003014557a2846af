"""The memory of a mount is that of its budget, however long the documents of a store are and however many."""

import errno
import json
import os
import re
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import needs
import numcodecs
import numpy as np
import pytest
import zarr
from mounting import ROOT, Daemon, program, wait_until, zarrfs

sys.path.append(str(ROOT / "scripts" / "benchmark"))
import scale_stores

MIB = 1 << 20

# What a mount takes beside its budget: handles, inodes, stacks, and what the allocator keeps.
SLACK = 16 * MIB


def walk(folder):
    """Has the attributes of everything below a folder shown."""
    with open("/dev/null", "w") as nowhere:
        subprocess.run(["ls", "-lR", folder], stdout=nowhere, check=True)


# Invariant of `attributes_and_copies_are_not_parsed`.
@pytest.mark.parametrize("view", ["store", "files"])
def test_documents_of_many_arrays_stay_within_the_budget(tmp_path, view):
    scale_stores.documents(tmp_path / "a.zarr", arrays=400, length=100_000)
    with Daemon(tmp_path / "a.zarr", "--memory", "16M") as mount:
        before = mount.peak_bytes()
        walk(mount.path if view == "store" else mount.files)
        assert mount.peak_bytes() - before < 16 * MIB + SLACK


def test_open_arrays_take_little_memory(tmp_path):
    scale_stores.documents(tmp_path / "a.zarr", arrays=1000, length=100)
    with Daemon(tmp_path / "a.zarr") as mount:
        before = mount.peak_bytes()
        walk(mount.files)
        assert mount.peak_bytes() - before < 1000 * 20_000 + SLACK


# Invariant of `attributes_and_copies_are_not_parsed`.
@pytest.mark.parametrize("name", ["old/attributes.json", "old/metadata.json", "new/attributes.json", "new/metadata.json"])
def test_a_long_document_takes_four_times_its_length(tmp_path, name):
    length = 6 * MIB
    scale_stores.long_attributes(tmp_path / "a.zarr", length)
    with Daemon(tmp_path / "a.zarr") as mount:
        before = mount.peak_bytes()
        document = json.loads((mount.files / name).read_text())
        attributes = document["attributes"] if name.endswith("metadata.json") else document
        stored = json.loads((tmp_path / "a.zarr" / "old" / ".zattrs").read_text())
        assert attributes == stored
        assert mount.peak_bytes() - before < 4 * length


def test_memory_of_a_long_document_is_freed(tmp_path):
    length = 12 * MIB
    scale_stores.long_attributes(tmp_path / "a.zarr", length)
    with Daemon(tmp_path / "a.zarr", "--memory", "16M") as small, Daemon(tmp_path / "a.zarr", "--memory", "1G") as large:
        mounts = [(mount, mount.own_bytes() + 8 * MIB + kept) for mount, kept in ((small, 0), (large, length))]
        for mount, _ in mounts:
            (mount.files / "new" / "attributes.json").read_text()
        # Threads without work end after 20 s, and the last one frees what was kept for more work.
        assert wait_until(lambda: all(mount.own_bytes() < most for mount, most in mounts), seconds=60, pause=1)


@pytest.mark.parametrize("make", [scale_stores.consolidated_v2, scale_stores.consolidated_v3])
def test_consolidated_metadata_are_in_memory_once(tmp_path, make):
    make(tmp_path / "a.zarr", 1000, 6000)
    name = ".zmetadata" if make == scale_stores.consolidated_v2 else "zarr.json"
    length = (tmp_path / "a.zarr" / name).stat().st_size
    with Daemon(tmp_path / "a.zarr", "--consolidated") as mount:
        before = mount.peak_bytes()
        walk(mount.path)
        assert mount.peak_bytes() - before < SLACK
        listed = sum(1 for _ in Path(mount.files).glob("group*/*"))
        assert listed == 1000 + 2 * 10
        assert mount.peak_bytes() < 4 * length + 2 * SLACK + 1000 * 8000


@pytest.mark.parametrize("name", ["old/attributes.json", "new/attributes.json"])
def test_the_longest_document_that_is_read_takes_four_times_its_length(tmp_path, name):
    length = 64 * MIB
    scale_stores.long_attributes(tmp_path / "a.zarr", 2 * MIB)
    stored = tmp_path / "a.zarr" / ("old/.zattrs" if name.startswith("old") else "new/zarr.json")
    # Blanks before the last brace.
    text = stored.read_text()
    stored.write_text(text[:-1] + " " * (length - len(text)) + text[-1:])
    assert stored.stat().st_size == length
    with Daemon(tmp_path / "a.zarr") as mount:
        before = mount.peak_bytes()
        shown = json.loads((mount.files / name).read_text())
        assert shown == json.loads((tmp_path / "a.zarr" / "old" / ".zattrs").read_text())
        assert mount.peak_bytes() - before < 4 * length
        with open(stored, "a", encoding="ascii") as file:
            file.write(" ")
        array = name.split("/")[0]
        if array == "old":
            # The data are read without the attributes.
            assert wait_until(lambda: "zarrfs_error" in (mount.files / name).read_text())
            assert (mount.files / "old" / "old.npy").read_bytes()[:6] == b"\x93NUMPY"
        else:
            assert wait_until(lambda: (mount.files / "new" / "ERROR.txt").exists())


MANY = {f"attribute{number:06}": number for number in range(220_000)}


# Invariant of `long_attributes_are_reduced_to_meaningful_ones_in_files`.
@pytest.mark.parametrize("name", ["a/a.nrrd", "a/a.h5", "a/a.tif", "a/a.cf.npy", "g/g.nc", "g/g.nc4", "all.nc4"])
def test_a_header_takes_four_times_the_document(tmp_path, name):
    """Many small attributes take twenty times their text as parsed values; a single stat used to parse them."""
    store = tmp_path / "all"
    grid = {"name": "regular", "configuration": {"chunk_shape": [4, 4]}}
    plane = scale_stores.V3_ARRAY | {"shape": [4, 4], "chunk_grid": grid}
    array = plane | {"attributes": MANY | {"scale_factor": 2.0, "units": "m"}}
    scale_stores.write(store / "zarr.json", {"zarr_format": 3, "node_type": "group"})
    scale_stores.write(store / "a" / "zarr.json", array)
    scale_stores.write(store / "g" / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": MANY})
    scale_stores.write(store / "g" / "b" / "zarr.json", scale_stores.V3_ARRAY)
    length = (store / "a" / "zarr.json").stat().st_size
    assert length > 4 * MIB
    documents = 2 if name == "all.nc4" else 1
    with Daemon(store) as mount:
        before = mount.peak_bytes()
        file = mount.files / name
        size = file.stat().st_size
        assert len(file.read_bytes()) == size < MIB
        assert mount.peak_bytes() - before < 4 * documents * length


# Invariant of `long_attributes_are_reduced_to_meaningful_ones_in_files`.
def test_a_file_says_which_attributes_it_leaves_out(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    store = tmp_path / "all"
    scale_stores.write(store / "zarr.json", {"zarr_format": 3, "node_type": "group"})
    array = scale_stores.V3_ARRAY | {"attributes": MANY | {"scale_factor": 2.0, "units": "m"}}
    scale_stores.write(store / "a" / "zarr.json", array)
    told = zarrfs("info", store / "a").stdout
    sentence = f"{len(MANY)} of {len(MANY) + 2} attributes"
    [line] = [line for line in told.splitlines() if line.strip().startswith("left out")]
    assert sentence in line and "a.nrrd" in line and "a.npy" not in line
    copied = zarrfs("cp", store, tmp_path / "all.nc4")
    assert f"leaves out {sentence}" in copied.stderr
    with netCDF4.Dataset(tmp_path / "all.nc4") as file:
        attributes = file["a"].__dict__
    assert attributes["scale_factor"] == 2.0 and attributes["units"] == "m"
    assert attributes["zarrfs_left_out"].startswith(sentence) and len(attributes) == 3
    with Daemon(store) as mount:
        for name in ("all.nc4", "a/a.nrrd"):
            assert os.getxattr(mount.files / name, "user.zarrfs.left_out").decode().startswith(sentence)
        with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
            os.getxattr(mount.files / "a" / "a.npy", "user.zarrfs.left_out")


# Invariant (caches): Small chunks count with their overhead against the memory budget.
@pytest.mark.parametrize("dimensions", [1, 64])
@pytest.mark.parametrize("kind", ["missing", "shard"])
def test_chunks_of_one_element_stay_within_the_budget(tmp_path, dimensions, kind):
    """A chunk of one byte takes 250 more bytes in memory, and 64 chunk indices take 512 bytes during a read."""
    count = 1 << 18 if dimensions == 1 else 1 << 16
    shape = [count] if dimensions == 1 else [1] * 48 + [2] * 16
    one, codecs = [1] * dimensions, [{"name": "bytes"}]
    values = bytes(number % 251 for number in range(count)) if kind == "shard" else bytes(count)
    if kind == "shard":
        index = [{"name": "bytes", "configuration": {"endian": "little"}}]
        configuration = {"chunk_shape": one, "codecs": codecs, "index_codecs": index, "index_location": "end"}
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        entries = b"".join(struct.pack("<QQ", place, 1) for place in range(count))
        key = tmp_path / "a.zarr" / ("c" + ".0" * dimensions)
        key.parent.mkdir()
        key.write_bytes(values + entries)
    grid = {"name": "regular", "configuration": {"chunk_shape": shape if kind == "shard" else one}}
    keys = {"name": "default", "configuration": {"separator": "."}}
    other = {"shape": shape, "chunk_grid": grid, "codecs": codecs, "data_type": "uint8", "chunk_key_encoding": keys}
    scale_stores.write(tmp_path / "a.zarr" / "zarr.json", scale_stores.V3_ARRAY | other | {"fill_value": 0})
    with Daemon(tmp_path / "a.zarr", "--memory", "16M") as mount:
        before, own = mount.peak_bytes(), mount.own_bytes()
        assert (mount.files / "a.raw").read_bytes() == values
        if kind == "missing":
            assert mount.peak_bytes() - before < 16 * MIB + SLACK
        # What a read of many chunks takes while it is answered is not in the budget.
        assert wait_until(lambda: mount.own_bytes() - own < 16 * MIB + SLACK)


# Invariant of `values_unused_for_ten_minutes_are_evicted`.
def test_kernel_pages_outlive_freed_memory(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4, MIB), chunks=(1, MIB), dtype="u1")
    array[:] = 7
    environment = os.environ | {"ZARRFS_TEST_MINUTE": "50"}
    with Daemon(tmp_path / "a.zarr", environment=environment) as mount:

        def counter(name):
            return json.loads((mount.path / ".zarrfs" / "stats.json").read_text())[name]

        def decodes():
            """Returns how many chunks a read decodes."""
            before = counter("decoded_chunks")
            assert len((mount.files / "a.raw").read_bytes()) == 4 * MIB
            return counter("decoded_chunks") - before

        def is_settled():
            """Whether nothing is held, and nothing is decoded any more that was predicted during the last read."""
            before = counter("decoded_chunks")
            time.sleep(1)
            return counter("memory_held_bytes") < MIB and counter("decoded_chunks") == before

        assert decodes() >= 4
        # The kernel may drop pages for reasons of its own, but not after each read.
        for _ in range(3):
            assert wait_until(is_settled)
            if decodes() == 0:
                break
        else:
            pytest.fail("each read decodes chunks")


# Invariant of `values_unused_for_ten_minutes_are_evicted`.
def test_idle_mounts_free_their_decoded_chunks(tmp_path):
    """Mounts used to keep their decoded chunks until they were unmounted."""
    mounts, planes = 50, 31
    array = zarr.create_array(tmp_path / "a.zarr", shape=(planes, MIB), chunks=(1, MIB), dtype="u1")
    array[:] = 7
    # A minute takes 200 ms, so that ten are over while others are read.
    environment = os.environ | {"ZARRFS_TEST_MINUTE": "200"}
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(tmp_path / "a.zarr", environment=environment)) for _ in range(mounts)]

        def held():
            return sum(daemon.resident_bytes() for daemon in daemons)

        before = held()
        for daemon in daemons:
            assert len((daemon.files / "a.raw").read_bytes()) == planes * MIB
        # Threads without work end after 20 s.
        assert wait_until(lambda: held() < 1.2 * before, seconds=60, pause=1), (before, held())


def test_free_memory_is_checked_if_the_kernel_reports_no_pressure(tmp_path):
    """The daemon has its own /proc without pressure files; the test sets the memory in it."""
    needs.require("root", os.geteuid() == 0)
    array = zarr.create_array(tmp_path / "a.zarr", shape=(16, MIB), chunks=(1, MIB), dtype="u1")
    array[:] = 7
    meminfo, point = tmp_path / "meminfo", tmp_path / "mount"
    point.mkdir()

    def has_free(share):
        meminfo.write_text(f"MemTotal: {1 << 20} kB\nMemAvailable: {int(share * (1 << 20)):7} kB\n")

    has_free(0.5)
    script = """
        mount --make-rprivate /
        [ ! -e /proc/pressure ] || mount -t tmpfs tmpfs /proc/pressure
        mount --bind "$1" /proc/meminfo
        shift
        exec "$@"
    """
    command = [program(), "mount", "-f", str(tmp_path / "a.zarr"), str(point)]
    # A minute takes a second: what nobody uses is given back after ten.
    process = subprocess.Popen(
        ["unshare", "--mount", "bash", "-euc", script, "-", meminfo, *command],
        env=os.environ | {"ZARRFS_TEST_MINUTE": "1000"},
    )
    control = Path(f"/proc/{process.pid}/root{point}/.zarrfs")

    def held():
        return json.loads((control / "stats.json").read_text())["memory_held_bytes"]

    try:
        assert wait_until(lambda: control.exists() or process.poll() is not None)
        with open(control / "files" / "a.raw", "rb") as file:
            for plane in reversed(range(16)):
                assert os.pread(file.fileno(), 1, plane * MIB) == b"\7"
        time.sleep(2.5)
        assert held() >= 16 * MIB
        has_free(0.05)
        assert wait_until(lambda: held() < MIB, seconds=5), held()
    finally:
        process.terminate()
        process.wait()


def test_only_threads_that_answer_requests_wake_for_them(tmp_path):
    """If a thread that only watches the mount wakes on another core, it costs a random read as much as the answer."""
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    requests = 2000
    with Daemon(tmp_path / "a.zarr") as mount:
        tasks = Path(f"/proc/{mount.process.pid}/task")

        def named():
            return [task for task in tasks.iterdir() if (task / "comm").read_text().strip() == "zarrfs-session"]

        # A thread names itself, on a busy machine after the first answer.
        watchers = wait_until(named)
        before = [switches(task) for task in watchers]
        for number in range(requests):
            assert not (mount.path / f"missing-{number}").exists()
        woken = sum(map(switches, watchers)) - sum(before)
        assert len(watchers) == 1 and woken < requests / 10, woken


def switches(task):
    """Returns how often a thread has given way to others."""
    text = (task / "status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])


def test_memory_of_consumed_planes_is_reused(tmp_path):
    """Planes that a sequential reader has consumed are in the page cache; their memory is used for the next planes."""
    planes = 192
    array = zarr.create_array(tmp_path / "a.zarr", shape=(planes, 512, 512), chunks=(1, 512, 512), dtype="f4")
    for plane in range(planes):
        array[plane] = plane + 1
    with Daemon(tmp_path / "a.zarr") as mount:
        with open(mount.files / "a.npy", "rb") as file:
            while file.read(MIB):
                pass
        counters = json.loads((mount.path / ".zarrfs" / "stats.json").read_text())
        # The header moves all elements, so that few answers of 1 MiB are a part of one plane, and seven of eight that have
        # 128 KiB, as the kernel asks for where nobody is root.
        assert planes * MIB / 10 < counters["copied_bytes"] < (planes + 8) * MIB
        # A short array is kept, and as much is decoded ahead.
        assert counters["memory_peak_bytes"] < 2 * 16 * MIB + SLACK


# What writes texts of any length, by the version of Zarr.
COMPRESSORS = {
    2: {"zstd": numcodecs.Zstd(1), "blosc": numcodecs.Blosc(), "gzip": numcodecs.GZip(1), "lz4": numcodecs.LZ4(), "bz2": numcodecs.BZ2(1),
        "lzma": numcodecs.LZMA(preset=0), "plain": None},
    3: {"zstd": zarr.codecs.ZstdCodec(), "blosc": zarr.codecs.BloscCodec(shuffle="noshuffle", typesize=1), "gzip": zarr.codecs.GzipCodec(level=1),
        "crc": zarr.codecs.Crc32cCodec(), "plain": None},
}


@pytest.mark.parametrize("version", [2, 3])
def test_too_little_memory_is_an_error_with_advice(tmp_path, version):
    """A chunk of texts may take a fifth of the memory, a file of texts half; the same store is readable with more memory."""
    texts = np.array([f"{hash((n, 7)) & 0xffffffffff:x}" * 9 for n in range(30_000)], dtype=object)
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    for name, compressor in COMPRESSORS[version].items():
        array = root.create_group(name).create_array(name, shape=texts.shape, chunks=texts.shape, dtype="string", compressors=compressor)
        array[...] = texts
    small = root.create_group("small")
    small.create_array("small", shape=texts.shape, chunks=(1000,), dtype="string")[...] = texts
    numbers = root.create_group("numbers").create_array("numbers", shape=(600_000,), chunks=(600_000,), dtype="f8")
    numbers[...] = np.random.default_rng(0).random(600_000)
    with Daemon(tmp_path / "a.zarr", "--memory", "4M") as mount:
        for name in [*COMPRESSORS[version], "small", "numbers"]:
            files = [mount.files / name / name / f"{name}.npy"]
            if name != "numbers":
                files += [files[0].with_name(f"{name}.{end}") for end in ("raw", "txt", "csv", "ndjson", "nc", "nc4")]
                files += [mount.files / name / f"{name}.{end}" for end in ("csv", "ndjson", "cf.csv", "nc", "nc4")]
            for file in files:
                with pytest.raises(OSError) as error:
                    file.read_bytes()
                assert error.value.errno == errno.EFBIG, (file, error.value)
        told = (mount.path / ".zarrfs/errors").read_text().splitlines()
        assert len(told) >= 8
        for line in told:
            assert "--memory 4M" in line and "give more --memory" in line, line
            assert "cannot be decoded" not in line
    # None of this is damage.
    done = zarrfs("check", "--data", "--memory", "4M", tmp_path / "a.zarr", check=False)
    findings = (done.stdout + done.stderr).splitlines()
    assert not any(line.startswith("error") for line in findings), findings
    assert sum("give more --memory" in line for line in findings) == len(COMPRESSORS[version]) + 1, findings
    with Daemon(tmp_path / "a.zarr", "--memory", "64M") as mount:
        for name in [*COMPRESSORS[version], "small"]:
            assert (mount.files / name / name / f"{name}.csv").read_text() == "".join(f'"{text}"\n' for text in texts), name


def test_large_columns_of_numbers_are_a_table(tmp_path):
    """Only the length of its text limits the rows of a table."""
    count = 3_000_000
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name in ("a", "b"):
        root.create_array(name, shape=(count,), chunks=(100_000,), dtype="u1", fill_value=7)
    with Daemon(tmp_path / "a.zarr", "--memory", "32M") as mount:
        assert (mount.files / "a.csv").stat().st_size == 4 + 4 * count
        assert (mount.files / "a" / "a.csv").read_bytes() == b"7\n" * count
