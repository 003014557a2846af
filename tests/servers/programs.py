"""Where the programs of the servers are: in .servers, which scripts/setup makes, or on the PATH."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".servers"


class Absent(Exception):
    """A program is not installed; the text says which one."""


def installed(path):
    """Returns the path of a file below .servers; Absent if it is not there."""
    found = INSTALLED / path
    if not found.is_file():
        raise Absent(f"{found.name} is not installed (scripts/setup servers)")
    return str(found)


def on_path(name, *more):
    """Returns the path of a program of the machine, which may lie in the folders `more`; Absent if there is none."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *more])
    found = shutil.which(name, path=folders)
    if found is None:
        raise Absent(f"{name} is not installed (scripts/setup servers)")
    return found
