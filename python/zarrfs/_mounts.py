"""The mounts of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List, NamedTuple, Optional

from ._program import failure, run


class MountInfo(NamedTuple):
    """A mount as `zarrfs list` tells of it."""

    store: str
    """The store, without secrets."""
    directory: Path
    """Where it is mounted."""
    view: Optional[str]
    """"store" or "files"; None if the mount does not answer."""
    state: str
    """"read-only", "writable", or why the mount does not answer."""
    changes: Optional[int]
    """How many keys are not in the store yet; None where that cannot be or is not known."""


def mounts() -> List[MountInfo]:
    """Returns all mounts of zarrfs that this process can see, whoever made them; `Error` if there is no way to know."""
    done = run(["list", "--json"])
    if done.returncode != 0:
        raise failure(done)
    lines = json.loads(done.stdout)
    return [
        MountInfo(line["store"], Path(line["directory"]), line["view"], line["state"], line["changes"])
        for line in lines
    ]
