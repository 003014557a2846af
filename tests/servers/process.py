"""One server as a process of its own: started, waited for, stopped, and never left behind.

A server ends with the process that started it, also when that one is killed: the kernel sees to it. It has its
own session, so that a Ctrl-C meant for a test is not for it, and no variable of the user's environment.
"""

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

from servers import web
from servers.ports import free_port

# How long a server may take to answer, on a machine that others keep busy.
START_LIMIT = 30
STOP_LIMIT = 5
TAIL_LINES = 20
PR_SET_PDEATHSIG = 1

LIBC = ctypes.CDLL(None)


def ending_with_this_process(signal_number):
    """Returns a `preexec_fn` by which a child gets a signal when the thread that starts it is gone."""
    parent = os.getpid()

    def ask():
        LIBC.prctl(PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent:
            os._exit(1)

    return ask


class Failed(Exception):
    """A server did not start; the text has the end of its log."""


class Server:
    """A server with a folder of its own; the classes below say how each one is called."""

    # What ends it and all its children at once.
    death_signal = signal.SIGKILL

    def __init__(self, folder):
        """Chooses the port; `folder` gets a folder for this server. Absent if it is not installed."""
        self.program = self.find()
        self.name = type(self).__name__
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = Path(folder).resolve() / f"{self.name}-{self.port}"
        self.folder.mkdir(parents=True)
        self.log = self.folder / "log"
        self.process = None

    def find(self):
        """Returns the path of the program; raises Absent."""
        raise NotImplementedError

    def arguments(self):
        """Returns what the program is called with."""
        raise NotImplementedError

    def environment(self):
        """Returns the variables that the program needs beside its PATH and HOME."""
        return {}

    def is_ready(self):
        return web.answers(self.url)

    def prepare(self):
        """Makes buckets and the like, once the server answers for the first time."""

    def variables(self):
        """Returns the environment variables by which tests find the server."""
        return {}

    def start(self):
        """Starts the process. Not from a thread, with the end of which the kernel would end the process too."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, *map(str, self.arguments())],
                cwd=self.folder,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self.folder),
                    **self.environment(),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ending_with_this_process(self.death_signal),
            )

    def wait(self):
        """Waits until the server answers; raises Failed when it does not, or ends."""
        process, end = self.process, time.monotonic() + START_LIMIT
        while not self.is_ready():
            if process.poll() is not None:
                raise Failed(f"{self.name} ended with {process.returncode}\n{self.tail()}")
            if time.monotonic() > end:
                raise Failed(f"{self.name} gave no answer for {START_LIMIT} s\n{self.tail()}")
            time.sleep(0.05)

    def stop(self):
        """Ends the process and its children; it may be started again, on the same port and data."""
        if self.process is None:
            return
        self.send(self.death_signal)
        try:
            self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def send(self, number):
        """Sends a signal to the process and its children, unless it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def tail(self):
        """Returns the last lines of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def __enter__(self):
        self.start()
        try:
            self.wait()
            self.prepare()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
