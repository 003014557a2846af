"""A server of a folder for Icechunk repositories: as the bucket `bucket` of S3 below /bucket, as a web server elsewhere.

The web server has index pages where `lists` is set. Both answer ranges, with an ETag made of the time of the file; `asked`
has each request.
"""

import html
import threading
import urllib.parse
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import ThreadingHTTPServer

import odd_bucket

BUCKET = odd_bucket.BUCKET


class Handler(odd_bucket.OddBucket):
    def do_GET(self):
        self.server.asked.append(f"{self.command} {self.path}")
        path, _, query = self.path.partition("?")
        name = urllib.parse.unquote(path).lstrip("/")
        if name == BUCKET or name.startswith(BUCKET + "/"):
            return self.send_of_bucket(name.removeprefix(BUCKET).lstrip("/"), query)
        place = self.server.folder / name
        if place.is_file():
            return self.send_object(place)
        if place.is_dir() and self.server.lists and path.endswith("/"):
            return self.send_index(place)
        return self.send_text(404, "not found")

    def send_of_bucket(self, key, query):
        if not key:
            return self.send_listing({name: values[0] for name, values in urllib.parse.parse_qs(query).items()})
        if (self.server.folder / key).is_file():
            return self.send_object(self.server.folder / key)
        return self.send_text(404, "<Error><Code>NoSuchKey</Code></Error>")

    def send_listing(self, query):
        """Answers ListObjectsV2 in one page."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = {}
        for file in sorted(file for file in self.server.folder.rglob("*") if file.is_file()):
            key = str(file.relative_to(self.server.folder))
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if key.startswith(prefix):
                names[key if end < 0 else key[: end + 1]] = element(file, key) if end < 0 else None
        named = [odd_bucket.element(name, None) if facts is None else facts for name, facts in names.items()]
        shown = "".join(named[: int(query.get("max-keys", 1000))])
        self.send_text(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{shown}</ListBucketResult>")

    def send_index(self, folder):
        names = sorted(place.name + ("/" if place.is_dir() else "") for place in folder.iterdir())
        links = "".join(f'<li><a href="{urllib.parse.quote(name)}">{html.escape(name)}</a></li>' for name in names)
        page = f"<html><title>Directory listing for {self.path}</title><body><ul>{links}</ul></body></html>"
        self.send_bytes(200, page.encode(), {"Content-Type": "text/html"})


def element(file, key):
    """Returns the element of an object in a listing."""
    facts = file.stat()
    modified = datetime.fromtimestamp(facts.st_mtime, timezone.utc)
    return (
        f"<Contents><Key>{html.escape(key)}</Key><Size>{facts.st_size}</Size>"
        f"<ETag>&quot;{facts.st_mtime_ns:x}&quot;</ETag>"
        f"<LastModified>{modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
    )


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder, port, lists):
        super().__init__(("127.0.0.1", port), Handler)
        self.folder, self.lists, self.kind, self.asked = folder, lists, None, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def s3(self):
        """Returns the options with which the program reads the bucket."""
        return ["--anon", "--endpoint", self.url]

    def handle_error(self, *_):
        """Says nothing of clients that are gone."""


@contextmanager
def serving(folder, port=0, lists=True):
    """Serves a folder for the length of a `with`."""
    server = Server(folder, port, lists)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
