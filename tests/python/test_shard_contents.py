"""Reads of a shard that another program replaces all the time: no read has inner chunks of two contents."""

import errno
import hashlib
import itertools
import mmap
import os
import random
import re
import threading
import time
import urllib.parse
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import zarr

import layout
from mounting import Mount

BUCKET = "bucket"
# Elements of the shard, and of an inner chunk; the pages that they fill.
SHARD = 1 << 14
INNER = 1 << 8
PAGES = 2 * SHARD // mmap.PAGESIZE
# How many contents there are, each of one value; more than a quarter of them is to be seen.
CONTENTS = 16
# How many reads there are at least.
READS = 400
# How long they go on at most, in seconds.
LONGEST = 10
# How often the shard is replaced: before so many of the requests for it. A read makes a few.
REPLACED = 0.05


class Store(dict):
    """The objects: the metadata of an array and its shard, which is replaced between requests for it."""

    def __init__(self, document, shards):
        super().__init__({"zarr.json": document, "c/0": shards[0]})
        self.shards, self.random = shards, random.Random(7)

    def asked(self, key):
        """Returns an object, or nothing if there is none of this key."""
        if key == "c/0" and self.random.random() < REPLACED:
            self[key] = self.random.choice(self.shards)
        return self.get(key)


class Objects(BaseHTTPRequestHandler):
    """Serves objects with the ETags of their bytes, as a web server without listing and as a bucket."""

    protocol_version = "HTTP/1.1"
    # Head and body in one packet: else the second one waits for 40 ms.
    wbufsize = 1 << 16

    def __init__(self, objects, *arguments):
        self.objects = objects
        super().__init__(*arguments)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if "list-type=2" in url.query:
            return self.send(200, self.listing(url.query))
        data = self.objects.asked(url.path.removeprefix(f"/{BUCKET}").lstrip("/"))
        if data is None:
            return self.send(404, b"")
        headers = {
            "ETag": f'"{hashlib.md5(data).hexdigest()}"',
            "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            return self.send(200, data, headers)
        if wanted[1]:
            first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        else:
            first, last = max(0, len(data) - int(wanted[2])), len(data) - 1
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self.send(206, data[first : last + 1], headers)

    def send(self, status, body, headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def listing(self, query):
        """Returns an answer of ListObjectsV2 with the objects alone."""
        prefix = urllib.parse.parse_qs(query).get("prefix", [""])[0]
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>"
            f'"{hashlib.md5(data).hexdigest()}"</ETag>'
            "<LastModified>2020-01-01T00:00:00Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        return text.encode()

    def log_message(self, *_):
        pass


@contextmanager
def serving(objects):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Objects, objects))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def contents_of(folder):
    """Returns the metadata of the array, and the shards of which all elements have one value."""
    shards = []
    for value in range(1, CONTENTS + 1):
        zarr.create_array(
            folder, data=np.full(SHARD, value, "u2"), chunks=(INNER,), shards=(SHARD,), overwrite=True
        )
        shards.append((folder / "c/0").read_bytes())
    return (folder / "zarr.json").read_bytes(), shards


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_read_never_mixes_two_versions_of_a_shard(tmp_path, kind):
    document, shards = contents_of(tmp_path / "a")
    with serving(Store(document, shards)) as url:
        place = [url] if kind == "http" else [f"s3://{BUCKET}", "--endpoint", url, "--anon"]
        draw, seen, stale = random.Random(3), set(), 0
        with Mount(*place, "--metadata-ttl", "20ms") as mount:
            file = layout.decoded(mount.files, mount.store, "", "raw")
            ends = time.monotonic() + LONGEST
            for number in itertools.count():
                # A quick machine makes few requests, before which the shard is replaced, for many reads.
                if time.monotonic() > ends or number >= READS and len(seen) > CONTENTS / 4:
                    break
                try:
                    data = read(file, draw)
                except OSError as error:
                    assert error.errno == errno.ESTALE
                    stale += 1
                    continue
                values = set(np.frombuffer(data, "<u2").tolist())
                assert len(values) == 1, f"one read has {sorted(values)}"
                seen |= values
    assert len(seen) > CONTENTS / 4, f"{seen}, {stale} of {number + 1} are stale"


def read(file, draw):
    """Returns elements by one pread that is one request: of pages, some may come before and after a change."""
    first = draw.randrange(PAGES)
    count = draw.randint(1, PAGES - first)
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    try:
        # Memory that begins with a page.
        part = mmap.mmap(-1, count * mmap.PAGESIZE)
        assert os.preadv(descriptor, [part], first * mmap.PAGESIZE) == len(part)
        return part[:]
    finally:
        os.close(descriptor)
