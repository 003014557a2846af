"""The connection by which a daemon knows that this process still wants its mount.

One end of a pair of sockets is the daemon's standard input (`zarrfs mount --until-eof`), the other stays here. The
kernel closes it when this process ends, however it ends, and the daemon then unmounts. A process that was forked off
closes its copy at once, since the mount is not its own; a program that it starts never has one.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref


class Lifeline:
    """A pair of sockets: `theirs` for the daemon, until it is started, and this process's own."""

    def __init__(self) -> None:
        # No fork may come between the making of the sockets and their being known.
        with _forking:
            self._ours, self.theirs = socket.socketpair()
            self._owner = os.getpid()
            _known.add(self)

    def is_own(self) -> bool:
        """Says whether this process has made it, and not one that this one was forked from."""
        return self._owner == os.getpid()

    def started(self) -> None:
        """Leaves the daemon's end to the daemon."""
        self.theirs.close()

    def cut(self) -> None:
        """Has the daemon unmount, and lets it end."""
        try:
            self._ours.shutdown(socket.SHUT_WR)
        except OSError:
            # The daemon has gone before.
            pass

    def has_daemon(self) -> bool:
        """Says whether there is still a daemon at the other end."""
        return not self.wait(0)

    def wait(self, seconds: float) -> bool:
        """Waits until there is no daemon any more, for at most so long; returns whether that is so."""
        end = time.monotonic() + seconds
        poll = select.poll()
        try:
            poll.register(self._ours, select.POLLIN)
            while poll.poll(max(0.0, end - time.monotonic()) * 1000):
                if not self._ours.recv(64):
                    return True
        except OSError:
            return True
        return False

    def close(self) -> None:
        """Closes this process's ends, and leaves those of other processes alone."""
        self._ours.close()
        self.theirs.close()


_known: "weakref.WeakSet[Lifeline]" = weakref.WeakSet()

# The thread that forks holds it meanwhile, so that its copy in the new process can be released there.
_forking = threading.RLock()


def _close_copies() -> None:
    for lifeline in list(_known):
        lifeline.close()
    _forking.release()


os.register_at_fork(
    before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_copies
)
