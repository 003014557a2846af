"""A web server of a folder, some of whose keys stall: their bodies begin and do not go on, or no answer comes at all."""

import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Stalls(SimpleHTTPRequestHandler):
    """Answers as Python's server does, but for the keys that stall. It knows no ranges."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        if not self.is_silent():
            super().do_HEAD()

    def do_GET(self):
        if self.is_silent():
            return
        if not self.is_of("stalled/c/"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.length))
        self.end_headers()
        self.wfile.write(b"x" * 100)
        self.wfile.flush()
        self.hang()

    def is_silent(self):
        """Notes the key that is asked for; does not return while the server is there if the key gets no answer."""
        self.server.asked.append(self.path.lstrip("/"))
        silent = self.is_of("silent/c/")
        if silent:
            self.hang()
        return silent

    def is_of(self, prefix):
        return self.path.lstrip("/").startswith(prefix)

    def hang(self):
        with self.server.counted():
            self.server.released.wait()
        self.close_connection = True

    def log_message(self, *_):
        pass


class StallingServer(ThreadingHTTPServer):
    """Serves `folder`: chunks of the array `stalled` stall after some bytes of `length`, those of `silent` get no answer."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, folder, length):
        super().__init__(("127.0.0.1", 0), partial(Stalls, directory=folder))
        self.length = length
        self.released = threading.Event()
        self.asked = []
        self.stalled = 0
        self.counting = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def counted(self):
        """Counts a request that stalls; how many there are now is `stalled`."""
        with self.counting:
            self.stalled += 1
        try:
            yield
        finally:
            with self.counting:
                self.stalled -= 1

    def handle_error(self, *_):
        """Says nothing of clients that are gone."""


@contextmanager
def serving(folder, length):
    """Serves a folder for the length of a `with`."""
    server = StallingServer(folder, length)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
