"""Reads of an Icechunk repository in a bucket: the mount beside icechunk-python with xarray, at several latencies."""

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import arrays
import mounting
import peers
import remote_peers
import table
from object_server import ObjectServer

LATENCIES = (0, 20, 50)
PEER = Path(__file__).with_name("icechunk_peer.py")
NAME = "icechunk-python, xarray"


def run(arguments):
    folder = arrays.FOLDER / f"icechunk-{arguments.size}"
    make(folder, arguments.size)
    rows = []
    for latency in LATENCIES:
        with tempfile.TemporaryDirectory(prefix="zarrfs-objects-") as logs:
            with ObjectServer(logs, folder.resolve(), latency_ms=latency) as server:
                rows += measure(server, latency, arguments.rounds)
    return rows


def make(folder, size):
    """Makes a repository with an array of `size` MiB in 512 chunks the first time."""
    repository = folder / "bucket" / "repository"
    if repository.exists():
        return
    print(f"making {repository}", flush=True)
    (folder / "bucket").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        values = Path(made) / "values.npy"
        np.save(values, arrays.field(size))
        peer("make", folder / "bucket" / "part", values)
    (folder / "bucket" / "part").rename(repository)


def peer(*arguments):
    command = [remote_peers.PYTHON, PEER, *arguments]
    out = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    return out.stdout


def measure(server, latency, rounds):
    """Returns the rows of one latency, the readers taking turns."""
    place = (server.url, "bucket", "repository")
    found = {kind: ([], [], []) for kind in ("whole", "first", "start")}
    for _ in range(rounds):
        for kind, (ours, theirs, requests) in found.items():
            before = len(server.requests())
            ours.append(read(server, kind))
            middle = len(server.requests())
            theirs.append(peers.parsed(peer(kind, *place)))
            requests.append((middle - before, len(server.requests()) - middle))
    rows = []
    for kind, (ours, theirs, requests) in found.items():
        row = table.speeds(f"{kind}, {latency} ms", NAME, ours, theirs, 1.0)
        if kind != "whole":
            seconds = [sorted(one.seconds for one in reads)[len(reads) // 2] for reads in (ours, theirs)]
            row = row._replace(ours=seconds[0], peer=seconds[1], unit="s")
        rows.append(row._replace(requests=f"{requests[-1][0]} / {requests[-1][1]} / {514 if kind == 'whole' else 5}"))
    return rows


def read(server, kind):
    """Reads through a fresh mount. The whole array as a file counts from its open, as in the other parts; the first
    byte counts from the start of `zarrfs mount`, both beside a peer in a running interpreter (`first`) and beside the
    start of one (`start`)."""
    start = time.perf_counter()
    with mounting.Mount("s3://bucket/repository", "--endpoint", server.url, "--anon") as mount:
        npy = mount.path / ".zarrfs" / "files" / "a" / "a.npy"
        if kind == "whole":
            return peers.read_file("whole", npy)
        with open(npy, "rb", buffering=0) as file:
            file.seek(128)
            data = file.read(4)
        return peers.Read(time.perf_counter() - start, len(data), 0.0)
