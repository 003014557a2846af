"""Web servers that answer for keys that they do not have by something else than 404, or call every object a page."""

import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import zarr

import layout
import mounting

SHAPE, CHUNKS = (8,), (4,)
PAGE = b"<!doctype html><title>Home</title>"


class OddWeb(BaseHTTPRequestHandler):
    """Serves the objects of a folder as `page_type`, and all else as `missing`: a status, its type, its body."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        file = self.server.folder / self.path.lstrip("/")
        if file.is_file():
            status, kind, body = 200, self.server.page_type, file.read_bytes()
        else:
            status, kind, body = self.server.missing
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving(folder, page_type, missing):
    """Serves a folder for the length of a `with`; gives its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), OddWeb)
    server.folder, server.page_type, server.missing = folder, page_type, missing
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def store(tmp_path):
    """A store with an array that is whole, and one without its last chunk."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=3)
    for name, stored in [("whole", 8), ("sparse", 4)]:
        array = root.create_array(name, shape=SHAPE, chunks=CHUNKS, dtype="<i4", fill_value=7)
        array[:stored] = np.arange(stored)
    return tmp_path / "s.zarr"


def values(mount, name):
    return np.load(layout.decoded(mount.files, mount.store, name, "npy"))


def check_sparse(url, *options):
    with mounting.Mount(url, *options) as mount:
        assert values(mount, "whole").tolist() == list(range(8))
        assert values(mount, "sparse").tolist() == [0, 1, 2, 3, 7, 7, 7, 7]
        assert not (mount.path / "sparse/c/1").exists()


def test_objects_typed_as_html_are_read(store):
    with serving(store, "text/html; charset=utf-8", (404, "text/html", b"Not Found")) as url:
        check_sparse(url)


ODD = [(200, "text/html", PAGE), (400, "text/plain", b""), (500, "text/plain", b"")]


@pytest.mark.parametrize("missing", ODD, ids=lambda missing: str(missing[0]))
def test_a_server_without_404_is_an_error_only_for_missing_chunks(store, missing):
    with serving(store, "application/octet-stream", missing) as url:
        with mounting.Mount(url, "--timeout", "3s") as mount:
            assert values(mount, "whole").tolist() == list(range(8))
            file = layout.decoded(mount.files, mount.store, "sparse", "npy")
            read = subprocess.run(["cat", file], capture_output=True, timeout=mounting.LIMIT)
            assert read.returncode == 1
            assert b"Input/output error" in read.stderr
            assert "configure the server to send 404" in (mount.path / ".zarrfs/errors").read_text()
        if missing[0] == 400:
            check_sparse(url, "--missing-is", "400")
