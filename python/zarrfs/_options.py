"""The options of `zarrfs mount` as keyword arguments.

Each has the name of the command's option, with an underscore for each hyphen, and the command checks its value: nothing
is known here but how a value is written.
"""

from __future__ import annotations

import difflib
import os
from typing import Any, List, Mapping, Sequence, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
Size = Union[int, str]
Duration = Union[int, float, str]


class MountOptions(TypedDict, total=False):
    """Options of `zarrfs mount`; zarrfs-mount(1) describes them.

    A size is a number of bytes, or a string such as "256M". A duration is a number of seconds, or a string such as
    "500ms". Permissions are an octal string, or a number such as 0o022. None and False leave an option out.
    """

    view: str
    options: Union[str, Sequence[str]]
    allow_other: bool
    allow_non_empty: bool
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
    storage_option: Union[str, Sequence[str], Mapping[str, str]]
    header: Union[str, Sequence[str], Mapping[str, str]]
    bearer_token_file: Path
    netrc: bool
    anon: bool
    endpoint: str
    region: str
    missing_is: int
    profile: str
    branch: str
    tag: str
    snapshot: str
    virtual_chunks: Union[str, Sequence[str]]
    metadata_ttl: Duration
    concurrency: int
    cache_dir: Path
    cache_size: Size
    log: Path
    verbose: Union[bool, int]


# Other names of options, as the command has them.
ALIASES = (
    "cache",
    "changes",
    "endpoint_url",
    "immutable",
    "log_file",
    "max_cache_size",
    "no_sign_request",
    "nonempty",
    "option",
)

# Values in one argument, with a comma between them.
JOINED = ("list",)

DURATIONS = ("timeout", "metadata_ttl")


def words(options: Mapping[str, Any]) -> List[str]:
    """Returns options as arguments of the command; TypeError for a keyword that is not an option."""
    found: List[str] = []
    for name, value in options.items():
        if name not in MountOptions.__annotations__ and name not in ALIASES:
            near = difflib.get_close_matches(name, MountOptions.__annotations__, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"mount() got an unexpected keyword argument '{name}'{hint}")
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
        mark = ": " if name == "header" else "="
        value = [f"{key}{mark}{text}" for key, text in value.items()]
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
