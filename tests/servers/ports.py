"""Free ports of 127.0.0.1."""

import random
import socket

# Below the ports that the kernel gives to outgoing connections, also when CLEARANCE is added: some servers take
# a second port so far above the first.
FIRST, LAST = 10_000, 22_000
CLEARANCE = 10_000

given = set()


def free_port():
    """Returns a port that is free, as is the one CLEARANCE above it; never the same one twice."""
    for _ in range(1000):
        port = random.randrange(FIRST, LAST)
        if port not in given and is_free(port) and is_free(port + CLEARANCE):
            given.add(port)
            return port
    raise RuntimeError(f"no free port between {FIRST} and {LAST}")


def is_free(port):
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
