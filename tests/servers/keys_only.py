"""A web server as those of stores of objects are: it knows keys and no folders, lists nothing, and its errors are pages.

It writes down each request, and may answer late.
"""

import re
import sys

from servers.process import Server

REQUEST = re.compile(r'"([A-Z]+ \S+) HTTP/1\.1" \d+')

PROGRAM = """
import http.server, os, sys, time
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    def parse_request(self):
        time.sleep(float(sys.argv[2]) / 1000)
        return super().parse_request()
    def send_head(self):
        if os.path.isdir(self.translate_path(self.path)):
            return self.send_error(404)
        return super().send_head()
http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class KeysOnly(Server):
    """Serves the folder `data`, each answer after `latency_ms`."""

    def __init__(self, folder, data, latency_ms=0):
        super().__init__(folder)
        self.data = data
        self.latency_ms = latency_ms

    def find(self):
        return sys.executable

    def arguments(self):
        program = f"import os; os.chdir({str(self.data)!r})\n{PROGRAM}"
        return ["-c", program, self.port, self.latency_ms]

    def variables(self):
        return {}

    def requests(self):
        """Returns methods and targets of all requests so far."""
        return REQUEST.findall(self.log.read_text(errors="replace"))
