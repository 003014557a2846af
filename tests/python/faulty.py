"""A server of a folder, and a bucket of it, that does at random what servers do wrong, to keys of arrays whose names begin
with `faulty`."""

import os
import random
import re
import threading
import urllib.parse

import stalling

# Of each hundred requests. What a listing or a HEAD cannot do becomes silence.
RATE = 12
FAULTS = ["silence", "stall", "break", "trickle", "half", "503", "405", "no tag", "other tag"]


class Faults(stalling.Stalls):
    """Answers requests, with a fault now and then."""

    def do_HEAD(self):
        self.answer(has_body=False)

    def do_GET(self):
        if "list-type=2" in self.path or self.path.split("?")[0].endswith("/"):
            return self.list()
        self.answer(has_body=True)

    def answer(self, has_body):
        """Answers with an object."""
        self.server.asked.append(self.key())
        fault = self.server.draw(self.key())
        if self.fail(fault):
            return
        try:
            with open(self.translate_path(self.path), "rb") as file:
                facts, data = os.fstat(file.fileno()), file.read()
        except OSError:
            return self.send_error(404)
        first, last = self.span(len(data))
        part = data[first : last + 1]
        # The honest length of a half.
        if fault == "half" and has_body and "/c/" in self.path:
            part = part[: len(part) // 2]
        is_part = "Range" in self.headers
        self.send_response(206 if is_part else 200)
        self.send_header("Content-Length", str(len(part)))
        if is_part:
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Last-Modified", self.date_time_string(facts.st_mtime))
        tags = {"no tag": '""', "other tag": f'"{random.random()}"'}
        self.send_header("ETag", tags.get(fault, f'"{facts.st_mtime_ns:x}"'))
        self.end_headers()
        if has_body:
            self.send(part, fault)

    def span(self, size):
        """Returns the first and the last byte that are asked for."""
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "bytes=0-"))
        if wanted[1]:
            return int(wanted[1]), min(int(wanted[2] or size - 1), size - 1)
        return max(0, size - int(wanted[2])), size - 1

    def fail(self, fault):
        """Does what comes in place of an answer; says whether that was so."""
        if fault == "silence" or (fault in ("stall", "trickle") and self.command == "HEAD"):
            self.hang()
        elif fault in ("503", "405"):
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            return False
        return True

    def send(self, data, fault):
        """Sends a body, or what a fault leaves of it."""
        if fault == "trickle":
            return self.trickle(data)
        if fault in ("stall", "break"):
            data = data[: len(data) // 2]
        self.wfile.write(data)
        self.wfile.flush()
        if fault == "stall":
            self.hang()
        elif fault == "break":
            self.close_connection = True

    def trickle(self, data):
        """Sends ten bytes a second, while the client is there."""
        with self.server.counted():
            for place in range(0, len(data), 2):
                self.wfile.write(data[place : place + 2])
                self.wfile.flush()
                if self.server.released.wait(0.2) or self.is_gone():
                    break
        self.close_connection = True

    def list(self):
        """Answers with a listing, whole or cut off."""
        self.server.asked.append(self.path)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        fault = self.server.draw(query.get("prefix", [self.key()])[0])
        if self.fail(fault):
            return
        if fault in ("break", "stall", "trickle", "half") and "list-type=2" in self.path:
            return self.send_cut_listing(fault)
        if "list-type=2" in self.path:
            return self.send_listing()
        super().do_GET()

    def send_cut_listing(self, fault):
        """Answers with a listing that ends too early: that says so, and not where it goes on; or that breaks off."""
        body = b"<ListBucketResult><IsTruncated>true</IsTruncated>"
        body += b"</ListBucketResult>" if fault == "half" else b"<Contents><Key>fau"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (fault == "break")))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True


class FaultyServer(stalling.StallingServer):
    """Serves `folder`, with faults while `rate` is more than 0; counts them in `met`."""

    def __init__(self, folder, seed):
        super().__init__(folder, Faults)
        self.random = random.Random(seed)
        self.drawing = threading.Lock()
        self.rate = 0
        self.met = dict.fromkeys(FAULTS, 0)

    def draw(self, key):
        """Returns what goes wrong with a request about a key; None mostly."""
        if not key.startswith("faulty"):
            return None
        with self.drawing:
            if self.random.randrange(100) >= self.rate:
                return None
            fault = self.random.choice(FAULTS)
            self.met[fault] += 1
            return fault
