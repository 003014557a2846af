"""All servers that tests share, started side by side and stopped together."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from servers.apache import Apache
from servers.azurite import Azurite
from servers.caddy import Caddy
from servers.fake_gcs import FakeGcs
from servers.moto import Moto
from servers.nginx import Nginx
from servers.plain_http import PlainHttp
from servers.programs import Absent
from servers.seaweedfs import SeaweedFS
from servers.webdav import WebDav

KINDS = [SeaweedFS, Moto, Azurite, FakeGcs, WebDav, Nginx, Apache, Caddy, PlainHttp]


@contextmanager
def running(kinds=KINDS):
    """Runs a server of each kind; gives the environment variables by which tests find them.

    One that is not installed is left out with a message. Failed if one does not start.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zarrfs-servers-"))
        # Left last, so that nobody waits for a server that was stopped.
        threads = stack.enter_context(ThreadPoolExecutor(len(kinds)))
        servers = []
        for server in those_installed(kinds, folder):
            stack.callback(server.stop)
            server.start()
            servers.append(server)
        # list() raises what a thread has raised.
        list(threads.map(make_ready, servers))
        variables = {}
        for server in servers:
            variables.update(server.variables())
        yield variables


def those_installed(kinds, folder):
    for kind in kinds:
        try:
            server = kind(folder)
        except Absent as absent:
            print(f"servers: {absent}", file=sys.stderr)
        else:
            yield server


def make_ready(server):
    server.wait()
    server.prepare()
