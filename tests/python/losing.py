"""A proxy that can lose its connections without a sign, as a suspend or a new address does: those that are open forward
nothing more and stay open, and new ones work."""

import select
import socket
import threading
from contextlib import contextmanager


class LosingProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, port):
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.is_over = threading.Event()
        self.losses = 0
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def lose(self):
        """Loses the connections that are open now."""
        self.losses += 1

    def accept(self):
        while not self.is_over.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.forward, args=(client, self.losses), daemon=True).start()

    def forward(self, client, losses):
        """Forwards one connection until it is closed or lost; one that is lost stays open."""
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            other = {client: server, server: client}
            while not self.is_over.is_set() and losses == self.losses:
                for side in select.select(list(other), [], [], 0.05)[0]:
                    data = side.recv(1 << 16) if losses == self.losses else None
                    if data == b"":
                        return
                    if data:
                        other[side].sendall(data)
            self.is_over.wait()


@contextmanager
def losing(port):
    """Runs a proxy for the length of a `with`."""
    proxy = LosingProxy(port)
    try:
        yield proxy
    finally:
        proxy.is_over.set()
        proxy.listener.close()
