"""A proxy before a server that can be told to refuse: what it refuses never reaches the server."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# What belongs to one connection and not to what goes through it.
OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Refusing:
    """Passes requests on to a server, but for those of the methods in `refused`: these get the status that it names.

    `requests` is what was asked: (method, path, status).
    """

    def __init__(self, endpoint):
        self.address = urlsplit(endpoint).netloc
        self.refused = {}
        self.requests = []

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, method, path, headers, body):
        """Returns status, headers and body."""
        status = self.refused.get(method)
        if status is not None:
            self.requests.append((method, path, status))
            return status, [], b"<Error><Code>Refused</Code></Error>" * (method != "HEAD")
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            self.requests.append((method, path, answer.status))
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def handler(proxy):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self):
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            # Signatures hold for the host that was asked.
            headers = dict(self.headers.items())
            status, headers, body = proxy.answer(self.command, self.path, headers, body)
            self.send_response_only(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length":
                    # That of HEAD is of a body that does not come.
                    length = value
                elif name.lower() not in OF_CONNECTION:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    return Handler
