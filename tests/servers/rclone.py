"""rclone as a client: makes buckets and copies folders into them."""

import os
import subprocess

from servers.programs import installed

LIMIT = 300


def program():
    return installed("bin/rclone")


def rclone(remote, *arguments):
    """Runs rclone; `remote` is the configuration of what the arguments call `remote:`. RuntimeError if it fails."""
    environment = {f"RCLONE_CONFIG_REMOTE_{name.upper()}": value for name, value in remote.items()}
    done = subprocess.run(
        [program(), "--config", os.devnull, *map(str, arguments)],
        env={"PATH": os.environ.get("PATH", os.defpath), **environment},
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
