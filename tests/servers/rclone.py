"""rclone as a client: makes buckets and copies folders into them."""

import os
import subprocess

from servers.programs import installed

LIMIT = 300


def program():
    return installed("bin/rclone")


def environment(remote):
    """Returns the environment in which rclone calls a configuration `remote:`."""
    named = {f"RCLONE_CONFIG_REMOTE_{name.upper()}": value for name, value in remote.items()}
    return {"PATH": os.environ.get("PATH", os.defpath), **named}


def start(remote, *arguments):
    """Starts rclone and returns its process."""
    command = [program(), "--config", os.devnull, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(remote), stdin=subprocess.DEVNULL)


def rclone(remote, *arguments):
    """Runs rclone and returns what it prints; RuntimeError if it fails."""
    done = subprocess.run(
        [program(), "--config", os.devnull, *map(str, arguments)],
        env=environment(remote),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode != 0:
        words = " ".join(map(str, arguments))
        raise RuntimeError(f"rclone {words}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def copy(folder, remote, place):
    """Copies the content of a folder to `place` of the remote, a bucket and a prefix."""
    rclone(remote, "copy", "--transfers", "16", "--checkers", "16", folder, f"remote:{place}")
