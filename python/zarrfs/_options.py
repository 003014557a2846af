"""The options of `zarrfs mount` as keyword arguments.

Each has the name of the command's option, with an underscore for each hyphen, and the command checks its value: nothing
is known here but how a value is written.
"""

from __future__ import annotations

import os
from typing import Any, List, Mapping, Sequence, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
Size = Union[int, str]
Duration = Union[int, float, str]


class MountOptions(TypedDict, total=False):
    """Options of `zarrfs mount`; zarrfs-mount(1) says what each of them does.

    A size is a number of bytes, or text such as "256M"; a duration a number of seconds, or text such as "500ms"; permissions are
    text in octal, or a number such as 0o022. None and False are as if the option was not given.
    """

    view: str
    options: Union[str, Sequence[str]]
    allow_other: bool
    uid: Union[int, str]
    gid: Union[int, str]
    umask: Union[int, str]
    memory: Size
    max_chunk: Size
    spill: Path
    passthrough: bool
    timeout: Duration
    list: Union[str, Sequence[str]]
    cow: Path
    rebind: bool
    write_through: bool
    read_only: bool
    lossy: bool
    follow_symlinks: bool
    dialect: str
    consolidated: bool
    option: Union[str, Sequence[str], Mapping[str, str]]
    anon: bool
    endpoint: str
    region: str
    missing_is: int
    profile: str
    metadata_ttl: Duration
    immutable: bool
    concurrency: int
    cache_dir: Path
    cache_size: Size
    log: Path
    verbose: Union[bool, int]


# Options of the command that a mount of this module has in any case, or never.
OWN = ("foreground", "until_eof", "rmdir")

# Values in one argument, with a comma between them.
JOINED = ("list",)

DURATIONS = ("timeout", "metadata_ttl")


def words(options: Mapping[str, Any]) -> List[str]:
    """Returns options as arguments of the command; TypeError for one that is not the caller's to give."""
    found: List[str] = []
    for name, value in options.items():
        if name in OWN:
            raise TypeError(f"{name} is no option of zarrfs.mount: it decides on that itself")
        if value is None or value is False:
            continue
        found.extend(_option(name, value))
    return found


def _option(name: str, value: Any) -> List[str]:
    if name == "verbose":
        return ["--verbose"] * int(value)
    if value is True:
        return [_flag(name)]
    if isinstance(value, Mapping):
        value = [f"{key}={text}" for key, text in value.items()]
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Sequence):
        value = [value]
    texts = [_text(name, single) for single in value]
    if name in JOINED:
        texts = [",".join(texts)]
    if name == "options":
        return [f"-o{text}" for text in texts]
    return [f"{_flag(name)}={text}" for text in texts]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _text(name: str, value: Any) -> str:
    if isinstance(value, (str, bytes, os.PathLike)):
        return os.fsdecode(value)
    if name in DURATIONS and isinstance(value, float):
        return f"{round(value * 1000)}ms"
    if name == "umask" and isinstance(value, int):
        return f"{value:03o}"
    return str(value)
