"""Many files at once, in three parts.

`tar x` of a v2 store with small chunks into a mount with --cow, compared with a plain directory and with bindfs, which
only passes a directory through FUSE. The commit of chunks: to a directory, compared with `cp -r`, and to an S3 server
20 ms away, compared with `rclone copy`. Concurrent closes with --write-through of files for a server 50 ms away,
compared with one close."""

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time

import arrays
import host_memory
import mounting
import peers
import table
from servers import rclone, seaweedfs
from servers.programs import Absent
from slow_link import slow_link

SMALL_FILES, SMALL_BYTES = 10_000, 400
CHUNKS, CHUNK_BYTES = 500, 256 << 10
LATENCY = 20

CLOSES, CLOSE_BYTES, CLOSE_LATENCY = 16, 8 << 20, 50

# As many requests at a time as zarrfs makes.
RCLONE = ["--transfers=32", "--checkers=32", "--no-traverse", "--ignore-times"]

GROUP = '{"zarr_format": 2}'
ARRAY = """{"zarr_format": 2, "shape": [%d], "chunks": [%d], "dtype": "|u1", "compressor": null, "fill_value": 0,
    "order": "C", "filters": null}"""


def run(arguments):
    folder = arrays.FOLDER / "changes"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        return [
            *unpacked(folder, arguments),
            *committed(folder, arguments),
            *committed_far_away(folder, arguments),
            *closed_far_away(folder, arguments),
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unpacked(folder, arguments):
    """Returns the row of `tar x`."""
    archive = folder / "small.tar"
    with tarfile.open(archive, "w") as tar:
        for name, content in chunks_of(SMALL_FILES, SMALL_BYTES):
            member = tarfile.TarInfo(f"a/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    ours, plain, bound = [], [], []
    for number in range(arguments.rounds):
        place = fresh(folder / str(number))
        (place / "plain").mkdir()
        (place / "bound").mkdir()
        plain.append(timed(SMALL_FILES, "tar", "xf", archive, "-C", place / "plain"))
        if peers.has_bindfs():
            with peers.bound(place / "bound") as path:
                bound.append(timed(SMALL_FILES, "tar", "xf", archive, "-C", path))
        with peers.Ours(place / "store", "--cow", place / "upper") as mount:
            ours.append(timed(SMALL_FILES, "tar", "xf", archive, "-C", mount.path))
    case = f"tar x, {SMALL_FILES} files"
    rows = [in_seconds(table.speeds(case, "plain folder", ours, plain, 0.7), ours, plain)]
    if bound:
        rows.append(in_seconds(table.speeds("", "bindfs", ours, bound, 1.0), ours, bound))
    return rows


def committed(folder, arguments):
    """Returns the rows of a commit to a directory. It is compared with a synced copy, since a commit syncs too."""
    source = chunks_in(folder / "array")
    ours, copied, synced = [], [], []
    for number in range(arguments.rounds):
        place = fresh(folder / f"commit-{number}")
        with peers.Ours(place / "store", "--cow", place / "upper") as mount:
            shutil.copytree(source, mount.path / "a")
            os.sync()
            written = place / "upper/keys/a"
            copied.append(timed(CHUNKS, "cp", "-r", written, place / "copied"))
            os.sync()
            copy_and_sync = f"cp -r {written} {place / 'synced'} && sync -f {place / 'synced'}"
            synced.append(timed(CHUNKS, "sh", "-c", copy_and_sync))
            ours.append(timed(CHUNKS, mounting.program(), "commit", place / "upper"))
    case = f"commit, {CHUNKS} chunks"
    rows = (table.speeds(case, "cp -r", ours, copied, 1.0), table.speeds("", "cp -r and sync", ours, synced, None))
    return [in_seconds(row, ours, theirs) for row, theirs in zip(rows, (copied, synced))]


def committed_far_away(folder, arguments):
    """Returns the row of a commit to a server."""
    source = chunks_in(folder / "array")
    ours, copied = [], []
    with server_far_away(LATENCY) as endpoint:
        for number in range(arguments.rounds):
            remote = seaweedfs.remote(endpoint)
            to = f"remote:{seaweedfs.BUCKET}/copied-{number}"
            host_memory.touch(CHUNKS * CHUNK_BYTES)
            start = time.perf_counter()
            rclone.rclone(remote, "copy", source, to, *RCLONE)
            copied.append(peers.Read(time.perf_counter() - start, CHUNKS, 0.0))
            ours.append(commit_far_away(folder, source, endpoint, number))
    case = f"commit, {CHUNKS} chunks, {LATENCY} ms"
    return [in_seconds(table.speeds(case, "rclone copy", ours, copied, 1.0), ours, copied)]


@contextlib.contextmanager
def server_far_away(latency):
    """Yields the endpoint of an S3 server with this latency in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="zarrfs-weed-") as logs:
        try:
            server = seaweedfs.SeaweedFS(logs)
        except Absent as absent:
            raise SystemExit(str(absent)) from None
        with server, slow_link(server.port, latency) as port:
            yield f"http://127.0.0.1:{port}"


def mount_far_away(folder, endpoint, name, *options):
    """Mounts a new group of a server."""
    url = f"s3://{seaweedfs.BUCKET}/{name}"
    server = ["--endpoint", endpoint, "--region", seaweedfs.REGION]
    keys = {"AWS_ACCESS_KEY_ID": seaweedfs.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": seaweedfs.SECRET_KEY}
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    (empty / ".zgroup").write_text(GROUP)
    rclone.rclone(seaweedfs.remote(endpoint), "copy", empty, f"remote:{url.removeprefix('s3://')}")
    return mounting.Daemon(url, *server, *options, environment={**os.environ, **keys})


def commit_far_away(folder, source, endpoint, number):
    """Returns how long the commit of an array to a new prefix took."""
    upper = folder / f"upper-{number}"
    with mount_far_away(folder, endpoint, f"committed-{number}", "--cow", upper) as mount:
        shutil.copytree(source, mount.path / "a")
        done = timed(CHUNKS, mounting.program(), "commit", upper)
    shutil.rmtree(upper)
    return done


def closed_far_away(folder, arguments):
    """Returns the row of closes that write files to a server."""
    several, one = [], []
    with server_far_away(CLOSE_LATENCY) as endpoint:
        for number in range(arguments.rounds):
            upper = ["--cow", folder / f"through-{number}", "--write-through"]
            with mount_far_away(folder, endpoint, f"closed-{number}", *upper) as mount:
                one.append(closed(mount.path, ["alone"]))
                several.append(closed(mount.path, [f"together-{name}" for name in range(CLOSES)]))
    case = f"{CLOSES} closes of 8 MiB, {CLOSE_LATENCY} ms"
    return [in_seconds(table.speeds(case, "one close", several, one, 0.4), several, one)]


def closed(path, names):
    """Returns the seconds to close written files, all at once."""
    files = [open(path / name, "wb", buffering=0) for name in names]
    for file in files:
        file.write(os.urandom(CLOSE_BYTES))
    closes = [threading.Thread(target=file.close) for file in files]
    start = time.perf_counter()
    for close in closes:
        close.start()
    for close in closes:
        close.join()
    return peers.Read(time.perf_counter() - start, 1, 0.0)


def chunks_of(count, length):
    """Yields the names and contents of the files of an array with this number of chunks."""
    yield ".zarray", (ARRAY % (count * length, length)).encode()
    for number in range(count):
        yield str(number), os.urandom(length)


def chunks_in(folder):
    """Returns a directory with an array; makes it the first time."""
    if not folder.exists():
        folder.mkdir()
        for name, content in chunks_of(CHUNKS, CHUNK_BYTES):
            (folder / name).write_bytes(content)
    return folder


def fresh(place):
    """Makes a directory with an empty store."""
    (place / "store").mkdir(parents=True)
    (place / "store/.zgroup").write_text(GROUP)
    return place


def timed(count, *command):
    host_memory.touch(CHUNKS * CHUNK_BYTES)
    start = time.perf_counter()
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return peers.Read(time.perf_counter() - start, count, 0.0)


def in_seconds(row, ours, theirs):
    """Returns a row with times in place of speeds."""
    seconds = [table.median(read.seconds for read in reads) for reads in (ours, theirs)]
    return row._replace(ours=seconds[0], peer=seconds[1], unit="s")
