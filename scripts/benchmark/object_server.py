"""The benchmark's own server of objects, and a client that makes the same requests as another one and nothing else."""

import subprocess

import peers
from servers.hadro import Hadro


class ObjectServer(Hadro):
    """Serves `data` as hadro does, and so fast that it does not limit what is measured; it has no faults but latency."""

    def find(self):
        return peers.EXAMPLES / "object_server"

    def arguments(self):
        return [self.data, self.port, self.faults["latency_ms"]]


def same_requests(server, paths, concurrency):
    """Makes requests again, so many at a time; returns the seconds that they took."""
    host = server.url.partition("://")[2]
    command = [peers.EXAMPLES / "same_requests", host, concurrency]
    made = "".join(f"{path}\n" for path in paths)
    out = subprocess.run(list(map(str, command)), check=True, input=made, stdout=subprocess.PIPE, text=True)
    return float(out.stdout)
