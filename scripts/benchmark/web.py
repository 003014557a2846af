"""A store like CMIP6's on a web server without listings, with consolidated metadata: the mount and zarr-python.

The rows have seconds, and all requests of a mount from its start to its end. The least number is one for each metadata
file that is read, and one for each chunk that is looked up.
"""

import subprocess
import tempfile
import time
import warnings
from collections import namedtuple
from statistics import median

import zarr

import arrays
import mounting
import peers
import table
from pathlib import Path
from servers.keys_only import KeysOnly

LATENCIES = (0, 20)
GROUPS, VARIABLES = 10, 20
SHAPE, CHUNKS, COUNT = (12, 18, 36), (3, 18, 36), 4
FIRST = "model000/var000"
NAME = "CMIP6-like over HTTP"
PYTHON = mounting.ROOT / ".peers" / "bin" / "python"
DIRECT = Path(__file__).with_name("direct_web.py")

# A timed task: `act` on the directory of a mount, the peer's name for it, and the number of requests that it needs.
Task = namedtuple("Task", "name act peer least")


def run(arguments):
    """Returns the rows of all tasks."""
    store = made()
    tasks = [
        Task("mount", lambda mount: None, "open", 1),
        Task("ls -lR", timed("ls", "-lR"), "walk", 1 + GROUPS * VARIABLES * COUNT),
        Task("find", timed("find"), "walk", 1),
        Task("first byte", first_byte, "read", 2),
    ]
    tasks = [task for task in tasks if arguments.only in f"{NAME}: {task.name}"]
    rows = []
    for latency in LATENCIES:
        with tempfile.TemporaryDirectory(prefix="zarrfs-web-") as folder:
            with KeysOnly(folder, store, latency) as server:
                for task in tasks:
                    rows.append(row(server, latency, task, arguments))
    return rows


def made():
    """Returns the store; makes it the first time."""
    path = arrays.FOLDER / f"web-{GROUPS}-{VARIABLES}.zarr"
    if not path.exists():
        print(f"making {path}", flush=True)
        part = path.with_suffix(".part")
        root = zarr.open_group(part, mode="w", zarr_format=2)
        for group in range(GROUPS):
            for number in range(VARIABLES):
                name = f"model{group:03}/var{number:03}"
                attributes = {"units": "K", "long_name": f"variable {number}", "cell_methods": "time: mean"}
                root.create_array(name, shape=SHAPE, chunks=CHUNKS, dtype="<f4", attributes=attributes)
        root[FIRST][...] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(part, zarr_format=2)
        part.rename(path)
    return path


def timed(*command):
    """Returns what runs a command on a mount; chunks that are not stored make `ls` fail."""
    return lambda mount: subprocess.run(
        [*command, mount], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )


def first_byte(mount):
    with open(mount / ".zarrfs" / "files" / FIRST / "var000.raw", "rb") as file:
        assert len(file.read(4)) == 4


def row(server, latency, task, arguments):
    """Returns the row of one task, both taking turns."""
    ours, theirs, requests = [], [], []
    for _ in range(arguments.rounds):
        before = len(server.requests())
        ours.append(mounted(server, task))
        between = len(server.requests())
        theirs.append(direct(server, task))
        requests.append((between - before, len(server.requests()) - between))
    made_by_us, made_by_peer = (median(made) for made in zip(*requests))
    return table.Row(
        f"{NAME}: {task.name}, {latency} ms",
        median(ours),
        f"zarr-python {task.peer}",
        median(theirs),
        "s",
        median(their / our for our, their in zip(ours, theirs)),
        None,
        False,
        f"{made_by_us:.0f} / {made_by_peer:.0f} / {task.least}",
    )


def mounted(server, task):
    """Returns the seconds of a task on a fresh mount; those of mounting alone for the task that does nothing else."""
    start = time.perf_counter()
    with mounting.Daemon(server.url) as mount:
        ready = time.perf_counter()
        task.act(mount.path)
        end = time.perf_counter()
    return ready - start if task.peer == "open" else end - ready


def direct(server, task):
    command = [PYTHON, "-W", "ignore", DIRECT, task.peer, server.url, FIRST]
    out = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    return peers.parsed(out.stdout).seconds
