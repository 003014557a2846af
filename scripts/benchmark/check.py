"""`zarrfs check`: the data of a store of 1 GiB, compared with the codec, and the keys of a store on a slow server.

The zarrs crate measures the codec: it decodes the same array in its process on all cores. A remote check is compared
with the least time of its requests: one for each metadata file, for each decoded chunk, and for each page of the list
of all keys. The option limits how many run at a time, and each takes the latency of the server. The server is the
benchmark's own, and adds almost nothing to the latency. A client that only repeats the same requests, as many at a
time, shows how close to the least time this machine can get.
"""

import os
import subprocess
import tempfile
import time
from statistics import median

import arrays
import mounting
import peers
import scale_stores
import table
from object_server import ObjectServer, same_requests
from test_check_memory import held

# Planes, and so MiB, of each array whose data are checked.
SIZE = 1024
CASES = ["zstd-1M", "blosc-lz4-1M", "gzip-4M", "sharded-zstd-8M-16K"]

# Memory of a check, and other memory of a process.
BUDGET = 512
SLACK = 64

LATENCY_MS = 20
# The default of --concurrency.
CONCURRENCY = 32
KEYS = 10_000

# Names in one answer of the server, and names of metadata files.
PAGE = 1000
DOCUMENTS = {"zarr.json", ".zarray", ".zgroup", ".zattrs"}


def run(arguments):
    chosen = [arrays.case(name) for name in CASES if arguments.only in name]
    rows = [row for case in chosen for row in data(case, arguments)]
    return rows + remote(arguments)


def data(case, arguments):
    """Returns the rows of one array whose chunks are all decoded."""
    store = arrays.store(case, SIZE)
    arrays.warm_up(store)
    ours, before, zarrs, peaks = [], [], [], []
    with peers.Zarrs(store) as in_process:
        for _ in range(arguments.rounds):
            read, peak = check("--data", f"--memory={BUDGET}M", store)
            ours.append(read._replace(bytes=SIZE * table.MIB))
            peaks.append(peak)
            zarrs.append(in_process.read())
            if arguments.before:
                with peers.built(arguments.before):
                    older, _ = check("--data", f"--memory={BUDGET}M", store)
                before.append(older._replace(bytes=SIZE * table.MIB))
    what = f"peak, with --memory {BUDGET}M"
    return [
        table.speeds(case.name, "zarrs in process", ours, zarrs, 0.8),
        *table.since(ours, before),
        table.limit("", what, max(peaks) / table.MIB, "MiB", BUDGET + SLACK),
    ]


def check(*arguments):
    """Checks a store; returns the Read, and the peak memory of the process."""
    command = [mounting.program(), "check", *map(str, arguments)]
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        peak = max(peak, held(process.pid))
        time.sleep(0.01)
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {process.stdout.read()}")
    return peers.Read(seconds, 0, 0), peak


def remote(arguments):
    """Returns the rows of checks of 10,000 keys: metadata files of many arrays, and chunks of one."""
    bucket = arrays.FOLDER / "check"
    many, flat = bucket / "bucket" / "many.zarr", bucket / "bucket" / "chunks.zarr"
    made(many, lambda store: scale_stores.documents(store, KEYS // 2, 600))
    made(flat, lambda store: scale_stores.flat_array(store, KEYS))
    tasks = [(f"check, {KEYS} keys", many, []), (f"check --data, {KEYS} keys", flat, ["--data"])]
    tasks = [task for task in tasks if arguments.only in task[0]]
    with tempfile.TemporaryDirectory(prefix="zarrfs-objects-") as logs:
        with ObjectServer(logs, bucket.resolve(), latency_ms=LATENCY_MS) as server:
            return [row for task in tasks for row in beside_least(server, task, arguments.rounds)]


def made(store, make):
    """Makes a store the first time."""
    if not store.exists():
        print(f"making {store}", flush=True)
        part = store.with_suffix(".part")
        make(part)
        part.rename(store)


def beside_least(server, task, rounds):
    """Yields the row that compares a check with the least time of its requests."""
    case, store, options = task
    place = [f"s3://bucket/{store.name}", "--endpoint", server.url, "--anon"]
    needed = requests_needed(store, "--data" in options)
    least = needed / CONCURRENCY * LATENCY_MS / 1000
    seconds, counts, peaks, bare = [], [], [], []
    for _ in range(rounds):
        before = len(server.requests())
        read, peak = check(*options, f"--concurrency={CONCURRENCY}", *place)
        made_now = [path for _, path, _ in server.requests()[before:]]
        seconds.append(read.seconds)
        counts.append(len(made_now))
        peaks.append(peak)
        bare.append(same_requests(server, made_now, CONCURRENCY))
    ratio, what = median(seconds) / least, f"least of {needed} requests"
    yield table.Row(f"{case}, {LATENCY_MS} ms", median(seconds), what, least, "s", ratio, None, False)
    yield table.limit("", "times the least", ratio, "", 1.5)
    yield table.limit("", "requests made", median(counts), "", 1.02 * needed)
    ratio = median(mine / theirs for mine, theirs in zip(seconds, bare))
    yield table.Row("", median(seconds), "the same requests alone", median(bare), "s", ratio, None, False)
    yield table.limit("", "times the same requests alone", ratio, "", 1.2)
    yield table.limit("", "the same requests alone, times the least", median(bare) / least, "", None)
    yield table.Row("", max(peaks) / table.MIB, "peak", None, "MiB", 0, None, True)


def requests_needed(store, data):
    """Returns the least number of requests of a check."""
    names = [name for _, _, names in os.walk(store) for name in names]
    read = len(names) if data else sum(name in DOCUMENTS for name in names)
    return read + -(-len(names) // PAGE)

