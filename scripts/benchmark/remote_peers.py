"""Readers of an S3 server: zarrfs and rclone mounted, tensorstore and zarr-python direct, and how each is timed.

Each read starts cold: a fresh mount or process, with empty caches.
"""

import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import layout
import mounting
import peers
from servers import rclone

PYTHON = mounting.ROOT / ".peers" / "bin" / "python"
DIRECT = Path(__file__).with_name("direct_read.py")

# The fastest found for reading small files and for listing. Caching whole files (--vfs-cache-mode full), several
# streams a file, other buffers and chunk sizes made no difference to small files; times of the server save a
# request each. The server's ETags are no checksums.
RCLONE = [
    "--read-only",
    "--no-checksum",
    "--use-server-modtime",
    "--vfs-cache-mode=off",
    "--dir-cache-time=1h",
    "--attr-timeout=1h",
    "--transfers=32",
    "--checkers=32",
]


@contextmanager
def zarrfs(bucket, store):
    """Yields the mountpoint of a store that zarrfs has mounted."""
    url = f"s3://{bucket.name}/{store}"
    with mounting.Daemon(url, "--endpoint", bucket.endpoint, "--anon") as mount:
        yield mount.path


@contextmanager
def rclone_mount(bucket, store, *options):
    """Yields the mountpoint of a store that rclone has mounted."""
    with tempfile.TemporaryDirectory(prefix="zarrfs-rclone-") as folder:
        point, cache = Path(folder) / "mount", Path(folder) / "cache"
        point.mkdir()
        remote = {"type": "s3", "provider": "Other", "endpoint": bucket.endpoint}
        command = ["mount", f"remote:{bucket.name}/{store}", str(point)]
        process = rclone.start(remote, *command, f"--cache-dir={cache}", *RCLONE, *options)
        try:
            mounting.wait_until(lambda: mounting.is_mounted(point) or process.poll(), 60)
            if not mounting.is_mounted(point):
                raise SystemExit("rclone did not mount")
            yield point
        finally:
            mounting.lazy_unmount(point)
            process.terminate()
            process.wait()


def direct(kind, *place):
    """Reads an array with a library in a fresh process."""
    command = [PYTHON, DIRECT, kind, *place]
    out = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    return peers.parsed(out.stdout)


def npy(mount, store):
    """Reads the whole decoded file of a mount of zarrfs."""
    files = mount / ".zarrfs" / "files"
    return peers.read_file("whole", layout.decoded(files, store, "/", "npy"))


def cat(mount, names, size):
    """Reads stored chunks, one after the other."""
    return timed(["cat", *(os.fspath(mount / name) for name in names)], size)


def find(mount, count):
    """Walks all names below a mount; SystemExit unless there are `count` of them."""
    start = time.perf_counter()
    out = subprocess.run(["find", mount], check=True, stdout=subprocess.PIPE)
    seconds = time.perf_counter() - start
    found = out.stdout.count(b"\n")
    if found != count:
        raise SystemExit(f"find saw {found} names, not {count}")
    return peers.Read(seconds, count, 0.0)


def timed(command, size):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return peers.Read(time.perf_counter() - start, size, 0.0)
