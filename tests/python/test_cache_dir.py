"""One folder of --cache-dir for several machines and users: what one of them has read, the others do not ask for again."""

import functools
import http.server
import json
import os
import stat
import subprocess
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

import mounting
import needs
import places

CHUNKS = 400
# Mounts, reads and says what that took, as a machine with this name, and another boot than this one.
MACHINE = """
set -e
hostname "$1"; mount --bind "$2" /proc/sys/kernel/random/boot_id
zarrfs=$3; folder=$4; shift 4
"$zarrfs" mount "$@" "$folder"
sha256sum < "$folder/.zarrfs/files/a/a.npy" > "$folder.sum"
cat "$folder/.zarrfs/stats.json" > "$folder.stats"
"$zarrfs" umount "$folder"
"""
HERE = MACHINE.replace("hostname", ": hostname").replace("mount --bind", ": mount --bind")
GROUP, USERS = 4400, (4401, 4402)


def array(folder):
    """Makes an array of many chunks."""
    random = np.random.default_rng(1)
    group = zarr.open_group(folder, mode="w")
    made = group.create_array("a", shape=(CHUNKS * 10,), chunks=(10,), dtype="i4")
    made[:] = random.integers(0, 1 << 30, made.shape)


@pytest.fixture
def machine(tmp_path):
    """Reads a place with `machine(place, options, environment, elsewhere)`; returns a digest of the values and how many
    requests went over the network."""
    needs.require("root", os.geteuid() == 0)
    boot = tmp_path / "boot_id"

    def read(place, options, environment, elsewhere):
        folder = tmp_path / uuid.uuid4().hex
        folder.mkdir()
        boot.write_text(f"{uuid.uuid4()}\n")
        words = [folder.name[:8], boot, mounting.program(), folder, *options, place]
        command = ["unshare", "--uts", "--mount"] if elsewhere else []
        command += ["sh", "-c", MACHINE if elsewhere else HERE, "sh", *words]
        try:
            subprocess.run(command, check=True, env=places.environment(environment), timeout=120)
        finally:
            mounting.lazy_unmount(folder)
        stats = json.loads(Path(f"{folder}.stats").read_text())
        return Path(f"{folder}.sum").read_text(), stats["http_requests"]

    return read


# Invariant (caches): Processes and users that share a disk cache make each request once.
def test_machines_and_users_that_share_a_folder_share_requests(machine, tmp_path):
    array(tmp_path / "made.zarr")
    place = places.S3(anybody=True)
    place.upload(tmp_path / "made.zarr")
    common = ["--cache-dir", tmp_path / "cache", "--metadata-ttl", "1h", "--endpoint", place.endpoint]
    signed = {**places.S3_KEYS, "AWS_REGION": "us-east-1", "HOME": "/home/alice"}
    readers = [
        (["--anon"], {"HOME": "/home/bob"}, False),
        ([], signed, True),
        (["--anon", "--region", "us-east-1"], {"HOME": "/root", "AWS_RETRY_MODE": "standard"}, False),
        ([], {**signed, "HOME": "/home/carol", "AWS_MAX_ATTEMPTS": "7"}, True),
    ]
    found = [machine(place.url, [*common, *options], *rest) for options, *rest in readers]
    assert len({values for values, _ in found}) == 1
    requests = [count for _, count in found]
    assert requests[0] >= CHUNKS, requests
    assert sum(requests) <= 1.05 * requests[0], requests


class Counted(http.server.SimpleHTTPRequestHandler):
    """Gives the files of a folder with an ETag each, and notes what was asked for."""

    def do_GET(self):
        self.server.asked.append(f"{self.command} {self.path}")
        super().do_GET()

    def do_HEAD(self):
        self.server.asked.append(f"{self.command} {self.path}")
        super().do_HEAD()

    def end_headers(self):
        self.send_header("ETag", f'"{len(self.path)}"')
        super().end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def counting(folder):
    """Serves a folder; `asked` are the paths of the requests."""
    handler = functools.partial(Counted, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.asked = []
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def outside():
    """Returns a folder that every user reaches."""
    needs.require("root", os.geteuid() == 0)
    folder = Path("/tmp") / f"zarrfs-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o755)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def cat(user, cache, url, check=True):
    """Prints a key as a user who is in the group, and whose files are nobody else's unless they are made so."""
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={GROUP}", "sh", "-c"]
    words = [mounting.program(), "cat", "--cache-dir", cache, "--metadata-ttl", "1h", url]
    command += ['umask 077; exec "$@"', "sh", *words]
    done = subprocess.run(command, capture_output=True, timeout=60, env=places.environment({}))
    assert not check or done.returncode == 0, done.stderr
    return done


def test_a_group_shares_a_folder_that_is_made_for_it(outside, tmp_path):
    array(tmp_path / "made.zarr")
    cache = outside / "cache"
    cache.mkdir()
    os.chown(cache, -1, GROUP)
    cache.chmod(0o2770)
    chunk = (tmp_path / "made.zarr/a/c/7").read_bytes()
    with counting(tmp_path) as server:
        url = f"{server.url}/made.zarr"
        for number, user in enumerate(USERS):
            server.asked.clear()
            assert cat(user, cache, f"{url}/a/c/7").stdout == chunk
            assert ("GET /made.zarr/a/c/7" in server.asked) == (number == 0), server.asked
            # And the second one can write there, too.
            assert cat(user, cache, f"{url}/a/c/{number}").stdout
    for path in cache.rglob("*"):
        facts = path.stat()
        expected = 0o2770 if path.is_dir() else 0o660
        assert (stat.S_IMODE(facts.st_mode), facts.st_gid) == (expected, GROUP), path
    assert {path.stat().st_uid for path in cache.rglob("*")} == set(USERS)


def test_a_folder_of_another_user_is_refused(outside, tmp_path):
    array(tmp_path / "made.zarr")
    cache = outside / "cache"
    cache.mkdir()
    with counting(tmp_path) as server:
        for owner, mode, words in [
            (USERS[1], 0o700, b"belongs to another user"),
            (USERS[0], 0o770, b"other users can write to --cache-dir"),
            (USERS[0], 0o2777, b"other users can write to --cache-dir"),
        ]:
            os.chown(cache, owner, GROUP)
            cache.chmod(mode)
            done = cat(USERS[0], cache, f"{server.url}/made.zarr/a/c/7", check=False)
            assert done.returncode == 2 and words in done.stderr, done.stderr
            assert b"2770" in done.stderr and not list(cache.iterdir())
