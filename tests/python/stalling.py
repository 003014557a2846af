"""A web server of a folder, and a bucket of it, some of whose keys stall: their bodies begin and do not go on, break off, or
no answer comes at all."""

import re
import socket
import threading
import urllib.parse
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# The bucket that the server has beside the folder, with the same objects.
BUCKET = "bucket"


class Stalls(SimpleHTTPRequestHandler):
    """Answers as Python's server does, but for the keys that stall. It knows no ranges."""

    protocol_version = "HTTP/1.1"
    # A body else waits for the acknowledgement of its head.
    disable_nagle_algorithm = True

    def do_HEAD(self):
        if not self.is_silent():
            super().do_HEAD()

    def do_GET(self):
        if "list-type=2" in self.path:
            return self.send_listing()
        if self.is_silent():
            return
        if not (self.is_of("stalled") or self.is_of("broken")):
            return self.send_part() if self.is_of_bucket() else super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(Path(self.translate_path(self.path)).stat().st_size))
        modified = Path(self.translate_path(self.path)).stat().st_mtime
        self.send_header("Last-Modified", self.date_time_string(modified))
        self.end_headers()
        self.wfile.write(b"x" * 100)
        self.wfile.flush()
        if self.is_of("broken"):
            self.close_connection = True
        else:
            self.hang()

    def is_silent(self):
        """Notes the key that is asked for; does not return while the server is there if the key gets no answer."""
        self.server.asked.append(self.key())
        silent = self.is_of("silent")
        if silent:
            self.hang()
        return silent

    def is_of(self, prefix):
        """Whether it is a chunk of an array whose name begins so."""
        folder, _, name = self.key().rpartition("/c/")
        return folder.startswith(prefix) and name.isdigit()

    def is_of_bucket(self):
        return self.path.startswith(f"/{BUCKET}/")

    def send_part(self):
        """Answers a GET in the bucket, with or without a range."""
        file = Path(self.translate_path(self.path))
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not file.is_file() or not wanted:
            return super().do_GET()
        data = file.read_bytes()
        if wanted[1]:
            first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
        else:
            first, last = max(0, len(data) - int(wanted[2])), len(data) - 1
        part = data[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Last-Modified", self.date_time_string(file.stat().st_mtime))
        self.end_headers()
        self.wfile.write(part)

    def key(self):
        """Returns the key that is asked for, in the folder or in the bucket."""
        return self.path.lstrip("/").removeprefix(f"{BUCKET}/")

    def translate_path(self, path):
        return super().translate_path("/" + path.lstrip("/").removeprefix(f"{BUCKET}/"))

    def send_listing(self):
        """Answers ListObjectsV2, with all names on one page."""
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        root = Path(self.directory)
        keys = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
        objects, prefixes = "", {}
        for key in keys:
            below = key.removeprefix(prefix)
            if key.startswith(prefix) and delimiter and delimiter in below:
                prefixes[prefix + below.split(delimiter)[0] + delimiter] = None
            elif key.startswith(prefix):
                facts = (root / key).stat()
                changed = datetime.fromtimestamp(int(facts.st_mtime), timezone.utc)
                objects += (
                    f"<Contents><Key>{key}</Key><Size>{facts.st_size}</Size>"
                    f"<LastModified>{changed:%Y-%m-%dT%H:%M:%SZ}</LastModified></Contents>"
                )
        names = "".join(
            f"<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>" for prefix in prefixes
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}{names}</ListBucketResult>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def hang(self):
        """Waits until the client is gone or the server ends."""
        with self.server.counted():
            while not (self.server.released.wait(0.1) or self.is_gone()):
                pass
        self.close_connection = True

    def is_gone(self):
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def log_message(self, *_):
        pass


class StallingServer(ThreadingHTTPServer):
    """Serves `folder`: chunks of arrays whose names begin with `stalled` stall after some bytes, those of
    `broken` break off there, and those of `silent` get no answer."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, folder, answers=Stalls):
        super().__init__(("127.0.0.1", 0), partial(answers, directory=folder))
        self.released = threading.Event()
        self.asked = []
        self.stalled = 0
        self.began = 0
        self.counting = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def counted(self):
        """Counts a request that stalls: how many there are now is `stalled`, and how many there have been `began`."""
        with self.counting:
            self.stalled += 1
            self.began += 1
        try:
            yield
        finally:
            with self.counting:
                self.stalled -= 1

    def handle_error(self, *_):
        """Says nothing of clients that are gone."""


@contextmanager
def serving(folder, kind=StallingServer):
    """Serves a folder for the length of a `with`."""
    server = kind(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
