"""Where the program is, and how it is run and understood."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Iterator, Optional, Sequence

from ._errors import Error

NAME = "zarrfs"

# A command that asks for so long hangs, in seconds.
LIMIT = 300.0


def program() -> str:
    """Returns the path of the program: $ZARRFS, or the one that was installed with this module, or one of PATH.

    FileNotFoundError if there is none.
    """
    chosen = os.environ.get("ZARRFS")
    if chosen:
        return os.path.abspath(chosen)
    for place in _places():
        path = place / NAME
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which(NAME)
    if found is None:
        raise FileNotFoundError(f"the program {NAME} is neither installed beside {Path(__file__).parent} nor in PATH")
    return os.path.abspath(found)


def _places() -> Iterator[Path]:
    """The folders that an installer of packages may have put the program into."""
    yield Path(sysconfig.get_path("scripts"))
    module = Path(__file__).resolve().parent
    # pip install --target and --prefix: lib/pythonX.Y/site-packages/zarrfs, or TARGET/zarrfs.
    yield module.parent / "bin"
    yield module.parents[3] / "bin" if len(module.parents) > 3 else module
    scheme = "posix_user" if sys.version_info < (3, 10) else sysconfig.get_preferred_scheme("user")
    yield Path(sysconfig.get_path("scripts", scheme=scheme))


def run(
    words: Sequence[str], stdin: Optional[int] = None, limit: Optional[float] = LIMIT
) -> subprocess.CompletedProcess[str]:
    """Runs the program with `words` to its end, and returns what it printed and its exit status, whatever it is.

    It is ended after `limit` seconds, which is an `Error`; None is for what takes as long as there is something to do.
    """
    try:
        return subprocess.run(
            [program(), *words],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Error(f"{NAME} {words[0]} did not end within {limit:g} s") from None


def failure(done: subprocess.CompletedProcess[str]) -> Error:
    """Returns the error that the program told on stderr: its last line, without the program's name."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if not lines:
        return Error(f"{NAME} ended with status {done.returncode}")
    return Error(lines[-1][len(NAME) + 2 :] if lines[-1].startswith(f"{NAME}: ") else lines[-1])
