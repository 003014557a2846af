"""hadro: read-only S3 over a folder, with latency and faults that a seed repeats. Each test starts its own."""

import re

from servers import web
from servers.process import Server
from servers.programs import installed

REQUEST = re.compile(r'"([A-Z]+) (\S+) HTTP/1\.1" (\d+)')


class Hadro(Server):
    """Serves `data`, each folder in it a bucket that anybody may read; `faults` are options of hadro, as
    `latency_ms=50`."""

    def __init__(self, folder, data, **faults):
        super().__init__(folder)
        self.data = data
        self.faults = faults

    def find(self):
        return installed("bin/hadro")

    def arguments(self):
        faults = [f"--{name.replace('_', '-')}={value}" for name, value in self.faults.items()]
        return [*faults, "--host", "127.0.0.1", "--port", self.port, self.data]

    def is_ready(self):
        # 503 is one of its faults.
        return web.answers(self.url, below=600)

    def requests(self):
        """Returns (method, path with query, status) of every request so far."""
        found = REQUEST.findall(self.log.read_text(errors="replace"))
        return [(method, path, int(status)) for method, path, status in found]
