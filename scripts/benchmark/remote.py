"""Reads of an S3 server with latency: the mount, compared with rclone's mount and with libraries that read directly.

The server is the benchmark's own (`object_server.py`), since a listing by hadro takes longer with more keys
below its prefix, 0.1 s for 8,192. All requests of a mount count, from its start to its end. The least number is one for
each object that is read, or for a thousand names. Rows of a web server follow (`web.py`).
"""

import tempfile
from collections import namedtuple
from statistics import median

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

import arrays
import peers
import remote_peers
import table
import web
from object_server import ObjectServer

LATENCIES = (20, 50)
PAGE = 1000

# Chunks of the array that is read, and of the one whose names are listed.
GRID = (8, 8, 8)
MANY = (32, 16, 16)

# A server's bucket, and the store in it.
Bucket = namedtuple("Bucket", "endpoint name")

# A thing to do: `zarrfs` and each of `peers`, {name: function}, return a Read; `aims` has the least ratio of
# speeds to some of the peers; `least` requests have to be made, and `most` may be.
Task = namedtuple("Task", "name zarrfs peers aims least most", defaults=[None])


def run(arguments):
    if arguments.size % GRID[0]:
        raise SystemExit(f"--size has to be a multiple of {GRID[0]}")
    folder = arrays.FOLDER / f"remote-{arguments.size}"
    whole, many = array(folder, arguments.size), many_chunks(folder)
    sharded = inner_chunks(folder, arguments.size)
    rows = []
    for latency in LATENCIES:
        with tempfile.TemporaryDirectory(prefix="zarrfs-objects-") as logs:
            with ObjectServer(logs, folder.resolve(), latency_ms=latency) as server:
                bucket = Bucket(server.url, "bucket")
                tasks = [*reads(bucket, whole), shards(bucket, sharded), listing(bucket, many)]
                if arguments.before:
                    tasks = [beside_older(task, arguments.before) for task in tasks]
                chosen = [task for task in tasks if arguments.only in task.name]
                rows += measure(server, latency, chosen, arguments.rounds)
    return rows + web.run(arguments)


def array(folder, size):
    """Returns the store of an array of `size` MiB in 512 chunks; makes it the first time."""
    path = folder / "bucket" / "array.zarr"
    if not path.exists():
        shape = (size, *arrays.PLANE)
        chunks = tuple(length // count for length, count in zip(shape, GRID))
        make(path, arrays.field(size), chunks, ZstdCodec(level=1))
    return path


def inner_chunks(folder, size):
    """Returns the store of an array of `size` MiB in shards of 512 inner chunks of 16 KiB; makes it the first time."""
    path = folder / "bucket" / "sharded.zarr"
    if not path.exists():
        shards = dict(shards=(128, 128, 128))
        make(path, arrays.field(size), (16, 16, 16), ZstdCodec(level=1), **shards)
    return path


def many_chunks(folder):
    """Returns the store of an array of 8,192 tiny chunks; makes it the first time."""
    path = folder / "bucket" / "many.zarr"
    if not path.exists():
        make(path, np.ones(MANY, "u1"), (1, 1, 1), None)
    return path


def make(path, values, chunks, compressor, **options):
    print(f"making {path}", flush=True)
    part = path.with_suffix(".part")
    options = dict(chunks=chunks, compressors=compressor, overwrite=True, **options)
    zarr.create_array(part, data=values, **options)
    part.rename(path)


def reads(bucket, store):
    """Returns the tasks of reading an array."""
    url = f"s3://{bucket.name}/{store.name}"
    chunks = sorted(path for path in (store / "c").rglob("*") if path.is_file())
    names = [path.relative_to(store) for path in chunks]
    size = sum(path.stat().st_size for path in chunks)

    def over(mounted, read, *more):
        def measured():
            with mounted(bucket, store.name) as mount:
                return read(mount, *more)

        return measured

    def over_zarr(mount):
        return remote_peers.direct("zarr", mount)

    zarrfs, rclone = remote_peers.zarrfs, remote_peers.rclone_mount
    tensorstore = "tensorstore direct"
    direct = {
        tensorstore: lambda: remote_peers.direct("tensorstore", url, bucket.endpoint),
        "zarr-python, s3fs": lambda: remote_peers.direct("zarr", url, bucket.endpoint),
    }
    over_rclone = {"zarr-python, rclone": over(rclone, over_zarr)}
    least = len(chunks) + 1
    return [
        Task(
            "whole .npy",
            over(zarrfs, remote_peers.npy, store),
            {tensorstore: direct[tensorstore]},
            {tensorstore: 1 / 1.2},
            least,
        ),
        Task(
            "zarr-python",
            over(zarrfs, over_zarr),
            {"zarr-python, s3fs": direct["zarr-python, s3fs"], **over_rclone},
            {"zarr-python, s3fs": 1.0},
            least,
        ),
        Task(
            f"cat {len(chunks)} chunks",
            over(zarrfs, remote_peers.cat, names, size),
            {"rclone mount": over(rclone, remote_peers.cat, names, size)},
            {"rclone mount": 5.0},
            len(chunks),
        ),
    ]


def shards(bucket, store):
    """Returns the task of reading an array of small inner chunks."""
    url = f"s3://{bucket.name}/{store.name}"

    def ours():
        with remote_peers.zarrfs(bucket, store.name) as mount:
            return remote_peers.npy(mount, store)

    def direct():
        return remote_peers.direct("tensorstore", url, bucket.endpoint)

    count = sum(1 for path in (store / "c").rglob("*") if path.is_file())
    tensorstore = "tensorstore direct"
    # The index of each shard comes before its inner chunks.
    least, most = 2 * count + 1, 3 * count
    return Task("sharded .npy", ours, {tensorstore: direct}, {tensorstore: 0.9}, least, most)


def listing(bucket, store):
    """Returns the task of walking the names of a store."""
    names = 1 + sum(1 for _ in store.rglob("*"))
    keys = sum(path.is_file() for path in store.rglob("*"))

    def over(mounted, *options):
        def measured():
            with mounted(bucket, store.name, *options) as mount:
                return remote_peers.find(mount, names)

        return measured

    return Task(
        f"find {keys - 1} chunks",
        over(remote_peers.zarrfs),
        {"rclone mount": over(remote_peers.rclone_mount)},
        {"rclone mount": 20.0},
        -(-keys // PAGE),
    )


def beside_older(task, program):
    """Returns the task with an older build as one more peer."""

    def older():
        with peers.built(program):
            return task.zarrfs()

    name = "zarrfs before"
    return task._replace(peers={**task.peers, name: older}, aims={**task.aims, name: 0.97})


def measure(server, latency, tasks, rounds):
    """Returns the rows of all tasks, their readers taking turns."""
    found = {}
    for _ in range(rounds):
        for task in tasks:
            for name, read in {"zarrfs": task.zarrfs, **task.peers}.items():
                before = len(server.requests())
                done = read()
                made = len(server.requests()) - before
                found.setdefault((task.name, name), []).append((done, made))
    return [row for task in tasks for row in rows_of(task, latency, found)]


def rows_of(task, latency, found):
    """Returns a row for each peer of a task."""
    ours, made = zip(*found[task.name, "zarrfs"])
    for number, peer in enumerate(task.peers):
        theirs, made_by_peer = zip(*found[task.name, peer])
        case = "" if number else f"{task.name}, {latency} ms"
        row = table.speeds(case, peer, ours, theirs, task.aims.get(peer))
        if task.name.startswith("find"):
            seconds = [median(read.seconds for read in reads) for reads in (ours, theirs)]
            row = row._replace(ours=seconds[0], peer=seconds[1], unit="s")
        requests = f"{median(made):.0f} / {median(made_by_peer):.0f} / {task.least}"
        yield row._replace(requests=requests)
    if task.most:
        yield table.limit("", "at most", median(made), "requests", task.most)
