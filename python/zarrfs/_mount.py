"""A mount that lasts as long as a `with`, an object or this process, whichever ends first."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import threading
import time
import warnings
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Literal, Optional, Type, Union, cast

from . import _options
from ._errors import CommitConflict, Error
from ._lifeline import Lifeline
from ._program import failure, run

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Self, Unpack

# How long a mount may take to leave the tree before `zarrfs umount` is tried, and the daemon of a mount that can be
# written to end after that, in seconds.
UNMOUNT_LIMIT = 10.0
WRITTEN_LIMIT = 5.0

PAUSE = 0.003

STILL_OPEN = (
    "is unmounted, and files of it are still open: they are read to their end, and what is written to them is stored when"
    " they are closed, after which its daemon ends"
)

# Modules that lie between a program and a warning about its mount.
BETWEEN = ("contextlib", "weakref")


def mount(
    store: Union[str, "os.PathLike[str]"],
    path: Union[str, "os.PathLike[str]", None] = None,
    **options: Unpack[_options.MountOptions],
) -> Mount:
    """Mounts a store, waits until the mount answers, and returns it; used with `with`, it is unmounted at the end.

    `store` is a folder, a zip archive or a URL. `path` is an empty folder, by default a temporary one, which is removed
    with the mount. `options` are those of `zarrfs mount`, see `MountOptions`. `Error` has the program's sentence if it
    refuses; `FileNotFoundError` comes where there is no program.

    The mount ends with this process in any case, also if that is killed. In a process that is forked off it can be used
    while this one has it, and is not unmounted by it.
    """
    return Mount(store, path, options)


class Mount(os.PathLike):  # type: ignore[type-arg]
    """A mounted store: a path (`os.fspath`), and what is at it. Made by `mount`."""

    store: Path
    """The store view: the keys as they are stored."""
    files: Path
    """The files view: a folder for each group and array, arrays decoded."""
    path: Path
    """Where it is mounted."""

    def __init__(
        self,
        store: Union[str, "os.PathLike[str]"],
        path: Union[str, "os.PathLike[str]", None],
        options: _options.MountOptions,
    ) -> None:
        words = _options.words(options)
        mounted = _Mounted(path)
        # However the command ends, also by a signal for this process, nothing stays.
        try:
            is_written = bool(options.get("cow") or options.get("write_through"))
            mounted.start(os.fspath(store), words, is_written)
        except BaseException:
            mounted.end()
            raise
        self._mounted = mounted
        self._finalizer = weakref.finalize(self, mounted.end)
        control = mounted.path / ".zarrfs"
        view = options.get("view", "store")
        self.path = mounted.path
        self.store = mounted.path if view == "store" else control / "store"
        self.files = mounted.path if view == "files" else control / "files"

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        state = "" if self.is_mounted() else ", not mounted"
        return f"<zarrfs.Mount {str(self.path)!r}{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.unmount()

    def is_mounted(self) -> bool:
        """Says whether the mount is there, and was not ended by this or another process."""
        return self._finalizer.alive and self._mounted.is_served()

    def unmount(self) -> None:
        """Unmounts; what has been unmounted already is no error.

        Of a mount that can be written, what was written is in the upper folder or in the store when this returns, but
        for what a program still has open: what that writes is stored when it closes the file, and only then can the
        upper folder be mounted again. What still has a file open, such as an array of `open`, also reads on until it lets
        go of it. Where it may also write, a RuntimeWarning says that there is such a file.
        """
        self._finalizer()

    def open(self, name: str, mode: Literal["r", "r+", "c"] = "r") -> numpy.memmap[Any, Any]:
        """Returns the array `name`, such as "a/b", mapped into memory: a chunk is decoded when it is used first.

        `mode` is "r", "r+" where the mount can be written, or "c" for changes that stay in this process, as for
        `numpy.memmap`. "" is an array at the root. FileNotFoundError for an array that is not there or has no form
        for numpy, such as one of strings of any length.
        """
        import numpy

        path = self.array_path(name)
        if not path.exists():
            why = "the store has no such array, or none that numpy can map"
            raise FileNotFoundError(errno.ENOENT, why, name)
        mapped = numpy.load(path, mmap_mode=mode, allow_pickle=False)
        return cast("numpy.memmap[Any, Any]", mapped)

    def array_path(self, name: str) -> Path:
        """Returns the path of the array `name` as a .npy file."""
        folder = self.files.joinpath(*name.strip("/").split("/"))
        if folder != self.files:
            return folder / f"{folder.name}.npy"
        arrays = [entry for entry in folder.iterdir() if entry.suffix == ".npy"]
        return arrays[0] if arrays else folder / "NAME.npy"

    def commit(self, *, force: bool = False, dry_run: bool = False) -> Dict[str, Any]:
        """Brings what was changed into the store; returns what was done, as `zarrfs commit --json` tells it.

        `CommitConflict` if somebody else has changed one of the keys meanwhile, unless `force`; then nothing was done.
        `Error` where the mount keeps no changes.
        """
        words = [*(["--force"] if force else []), *(["--dry-run"] if dry_run else [])]
        # It takes as long as what was changed.
        done = run(["commit", "--json", *words, "--", str(self.path)], limit=None)
        if done.returncode not in (0, 1):
            raise failure(done)
        report: Dict[str, Any] = json.loads(done.stdout)
        conflicts = [(key, why) for key, why in report["conflicts"]]
        if conflicts:
            keys = ", ".join(f"{key}: {why}" for key, why in conflicts)
            raise CommitConflict(f"nothing was committed; {keys}", conflicts)
        return report


class _Mounted:
    """What has to be undone: the mount, its daemon and the temporary folder. It outlives the `Mount`."""

    def __init__(self, path: Union[str, "os.PathLike[str]", None]) -> None:
        self._is_temporary = path is None
        self._is_written = False
        self._was_there = False
        self._ending = threading.Lock()
        self._lifeline: Optional[Lifeline] = None
        given = tempfile.mkdtemp(prefix="zarrfs-") if path is None else os.fspath(path)
        self.path = Path(os.path.realpath(given))

    def start(self, store: str, words: "list[str]", is_written: bool) -> None:
        """Mounts, and waits until the mount answers."""
        self._is_written = is_written
        self._lifeline = lifeline = Lifeline()
        own = ["--until-eof", *(["--rmdir"] if self._is_temporary else [])]
        command = ["mount", *own, *words, "--", store, str(self.path)]
        # It has a limit of its own, the option `timeout`.
        done = run(command, stdin=lifeline.theirs.fileno(), limit=None)
        lifeline.started()
        if done.returncode != 0:
            raise failure(done)
        self._was_there = True

    def is_served(self) -> bool:
        lifeline = self._lifeline
        if lifeline is None:
            return False
        return self._is_there() and (not lifeline.is_own() or lifeline.has_daemon())

    def end(self) -> None:
        """Unmounts and removes the temporary folder; does nothing in a process that was forked off."""
        lifeline = self._lifeline
        if lifeline is not None and not lifeline.is_own():
            return
        with self._ending:
            try:
                if lifeline is not None:
                    lifeline.started()
                    self._unmount(lifeline)
            finally:
                if self._is_temporary:
                    _remove(self.path)

    def _unmount(self, lifeline: Lifeline) -> None:
        try:
            self._leave(lifeline)
            if self._is_written and not lifeline.wait(WRITTEN_LIMIT):
                warnings.warn(f"{self.path} {STILL_OPEN}", RuntimeWarning, _caller_level())
        finally:
            lifeline.close()

    def _leave(self, lifeline: Lifeline) -> None:
        """Has the mount leave the tree."""
        lifeline.cut()
        end = time.monotonic() + UNMOUNT_LIMIT
        # A daemon that has not mounted yet may still do so.
        while not lifeline.wait(PAUSE) and time.monotonic() < end:
            if self._was_there and not self._is_there():
                break
        if self._is_there():
            self._unmount_by_command()

    def _unmount_by_command(self) -> None:
        """For a daemon that was killed or hangs."""
        done = run(["umount", "--", str(self.path)])
        if done.returncode != 0 and self._is_there():
            raise failure(done)

    def _is_there(self) -> bool:
        """Says whether something of zarrfs is mounted at the path; asks the kernel's table, never the mount."""
        wanted = os.fsencode(self.path)
        with open("/proc/self/mountinfo", "rb") as table:
            for line in table:
                left, _, right = line.partition(b" - ")
                if _unescaped(left.split()[4]) == wanted and right.startswith(b"fuse.zarrfs "):
                    return True
        return False


def _caller_level() -> int:
    """Returns the level of the stack, for `warnings.warn` in the caller, at which the program is that called the module."""
    level, frame = 1, sys._getframe(1)
    own = __name__.partition(".")[0]
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != own and module not in BETWEEN:
            break
        frame = frame.f_back
        level += 1
    return level


def _unescaped(field: bytes) -> bytes:
    """Returns a field of the kernel's table with its octal escapes read."""
    first, *rest = field.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        # The daemon has removed it, or somebody has put something there meanwhile, which is not ours.
        pass
