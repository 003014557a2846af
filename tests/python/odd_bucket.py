"""A bucket of a server of S3 that does odd things: it lists nothing, knows version 1 of listings alone, or its listings do
not end."""

import html
import re
import threading
import urllib.parse
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUCKET = "bucket"
# How many names a page has.
PAGE = 20

# What the servers do.
UNLISTED = "lets objects be read and nothing else: it answers 403 for a missing key"
VERSION_1 = "knows ListObjects of version 1 alone"
EMPTY_TOKEN = "sends its first page each time, with an empty token"
SAME_TOKEN = "sends its first page each time, with the same token"
CUT_OFF = "says that its listings go on, and sends no name"


class OddBucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, _, query = self.path.partition("?")
        key = urllib.parse.unquote(path).lstrip("/").removeprefix(BUCKET).lstrip("/")
        self.server.asked.append(self.path)
        if not key:
            return self.send_listing({name: values[0] for name, values in urllib.parse.parse_qs(query).items()})
        file = self.server.folder / key
        if file.is_file():
            return self.send_object(file)
        if self.server.kind == UNLISTED:
            return self.send_text(403, "<Error><Code>AccessDenied</Code></Error>")
        return self.send_text(404, "<Error><Code>NoSuchKey</Code></Error>")

    def send_object(self, file):
        data, status, headers = file.read_bytes(), 200, {}
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            first = int(wanted[1]) if wanted[1] else max(0, len(data) - int(wanted[2]))
            last = min(int(wanted[2]) if wanted[1] and wanted[2] else len(data) - 1, len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        facts = file.stat()
        headers["Last-Modified"] = self.date_time_string(facts.st_mtime)
        headers["ETag"] = f'"{facts.st_mtime_ns:x}"'
        self.send_bytes(status, data, headers)

    def send_listing(self, query):
        kind = self.server.kind
        if kind == UNLISTED:
            return self.send_text(403, "<Error><Code>AccessDenied</Code></Error>")
        marker = query.get("marker", "") if kind == VERSION_1 else ""
        names = self.names(query.get("prefix", ""), query.get("delimiter", ""), marker)
        size = min(int(query.get("max-keys", PAGE)), PAGE)
        flag = f"<IsTruncated>{str(len(names) > size or kind != VERSION_1).lower()}</IsTruncated>"
        token = {EMPTY_TOKEN: "<NextContinuationToken/>", SAME_TOKEN: "<NextContinuationToken>t</NextContinuationToken>"}
        shown = "".join(names[:size]) if kind != CUT_OFF else ""
        self.send_text(200, f"<ListBucketResult>{flag}{token.get(kind, '')}{shown}</ListBucketResult>")

    def names(self, prefix, delimiter, marker):
        """Returns the elements of the names after a marker."""
        found = {}
        folder = self.server.folder
        for key in sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()):
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if end < 0 else key[: end + 1]
            if key.startswith(prefix) and name > marker:
                found[name] = (folder / key).stat().st_size if end < 0 else None
        return [element(name, size) for name, size in found.items()]

    def send_text(self, status, text):
        self.send_bytes(status, text.encode(), {"Content-Type": "application/xml"})

    def send_bytes(self, status, data, headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(data), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


def element(name, size):
    """Returns the element of an object, or of a prefix, which has no size."""
    name = html.escape(name)
    if size is None:
        return f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
    return (
        f"<Contents><Key>{name}</Key><Size>{size}</Size><ETag>&quot;1&quot;</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )


class OddServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder, kind):
        super().__init__(("127.0.0.1", 0), OddBucket)
        self.folder, self.kind, self.asked = folder, kind, []

    @property
    def place(self):
        """Returns the words by which the program is told of the bucket."""
        return [f"s3://{BUCKET}", "--anon", "--endpoint", f"http://127.0.0.1:{self.server_address[1]}"]

    def handle_error(self, *_):
        """Says nothing of clients that are gone."""


@contextmanager
def serving(folder, kind):
    """Serves a folder as a bucket for the length of a `with`."""
    server = OddServer(folder, kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
