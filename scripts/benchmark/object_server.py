"""The benchmark's own object server, and a client that only repeats the requests of another client."""

import subprocess

import peers
from servers.hadro import Hadro


class ObjectServer(Hadro):
    """Serves `data` as hadro does, but faster, so that it does not limit the measured programs. It only adds latency."""

    def find(self):
        return peers.EXAMPLES / "object_server"

    def arguments(self):
        return [self.data, self.port, self.faults["latency_ms"]]


def same_requests(server, paths, concurrency):
    """Repeats requests, this many at a time; returns the seconds that they took."""
    host = server.url.partition("://")[2]
    command = [peers.EXAMPLES / "same_requests", host, concurrency]
    made = "".join(f"{path}\n" for path in paths)
    out = subprocess.run(list(map(str, command)), check=True, input=made, stdout=subprocess.PIPE, text=True)
    return float(out.stdout)
