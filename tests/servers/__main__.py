"""Runs a command while servers run beside it; scripts/servers says more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

# Not this folder, whose modules would hide others of the same names.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from servers.process import Failed, ending_with_this_process
from servers.together import running

# How long a command may take to end when it is told to.
PATIENCE = 30


class Told(Exception):
    """A signal that ends this process; `args[0]` is its number."""


def tell(number, _):
    raise Told(number)


def main(command):
    """Returns the exit status: that of the command, or 1 when the servers do not run."""
    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGHUP, tell)
    try:
        with running() as variables:
            return run(command, {**os.environ, **variables})
    except Told as told:
        return 128 + told.args[0]
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Failed as fault:
        print(f"servers: {fault}", file=sys.stderr)
        return 1


def run(command, environment):
    """Runs a command to its end, or until this process is told to end; returns its exit status as shells have it."""
    try:
        process = subprocess.Popen(
            command, env=environment, preexec_fn=ending_with_this_process(signal.SIGTERM)
        )
    except OSError as error:
        print(f"servers: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    # A Ctrl-C goes to the command too, which decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    except Told as told:
        process.send_signal(told.args[0])
        end(process)
        raise
    return status if status >= 0 else 128 - status


def end(process):
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: scripts/servers COMMAND...", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
