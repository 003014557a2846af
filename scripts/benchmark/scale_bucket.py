"""A bucket of a million keys for the part `scale`: a server that computes each page of its listings on request."""

import bisect
import http.server
import json
import threading
import urllib.parse
from contextlib import contextmanager
from xml.sax.saxutils import escape

from scale_stores import V2_ARRAY

PAGE = 1000

# Elements and bytes of a chunk.
ELEMENTS = 1024
CHUNK = bytes(4 * ELEMENTS)

ENTRY = '<Contents><Key>{}</Key><Size>{}</Size><ETag>"1"</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>'


class Bucket:
    """The keys of an array `many` whose chunks are all stored, in the order of a listing."""

    def __init__(self, chunks):
        array = json.dumps(V2_ARRAY | {"shape": [ELEMENTS * chunks], "chunks": [ELEMENTS]}).encode()
        self.documents = {".zgroup": b'{"zarr_format": 2}', "many/.zarray": array}
        self.keys = sorted([*self.documents, *(f"many/{number}" for number in range(chunks))])
        self.known = set(self.keys)
        self.requests = 0

    def content(self, key):
        """Returns the bytes of an object, or `None` if it is missing."""
        return self.documents.get(key, CHUNK) if key in self.known else None

    def page(self, prefix, delimiter, start):
        """Returns a page of a listing as XML; `start` is the key that it begins with."""
        place, found, last = bisect.bisect_left(self.keys, max(prefix, start)), [], ""
        while place < len(self.keys) and self.keys[place].startswith(prefix) and len(found) < PAGE:
            key = self.keys[place]
            below = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if below[1]:
                folder = prefix + below[0] + delimiter
                found.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
                place = bisect.bisect_left(self.keys, folder[:-1] + chr(ord(delimiter) + 1))
            else:
                found.append(ENTRY.format(escape(key), len(self.content(key))))
                place += 1
        if place < len(self.keys) and self.keys[place].startswith(prefix):
            last = f"<NextContinuationToken>{escape(self.keys[place])}</NextContinuationToken>"
        truncated = "true" if last else "false"
        return f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{last}{''.join(found)}</ListBucketResult>"


def handler(bucket):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            bucket.requests += 1
            path, _, query = self.path.partition("?")
            asked = dict(urllib.parse.parse_qsl(query))
            if asked.get("list-type") == "2":
                start = asked.get("continuation-token") or asked.get("start-after", "")
                page = bucket.page(asked.get("prefix", ""), asked.get("delimiter", ""), start)
                return self.answer(200, page.encode())
            content = bucket.content(urllib.parse.unquote(path).removeprefix("/b/"))
            self.answer(*((404, b"") if content is None else (200, content)))

        do_HEAD = do_GET

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", len(body))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


@contextmanager
def served(chunks):
    """Serves a bucket `b` on a port of 127.0.0.1; yields it and the options of a mount."""
    bucket = Bucket(chunks)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(bucket))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield bucket, ("--anon", "--endpoint", f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
