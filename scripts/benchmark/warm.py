"""Whole files read again out of the page cache: the mount, tmpfs, disk."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import arrays
import peers
import table

TMPFS = Path("/dev/shm")


def run(arguments):
    case = arrays.case("zstd-8M")
    store = arrays.store(case, arguments.size)
    arrays.warm_up(store)
    with ExitStack() as mounts:
        mount = mounts.enter_context(peers.Ours(store))
        tmpfs, disk = mounts.enter_context(copies(mount.npy))
        older = older_file(mounts, store, arguments)
        reads = {path: [] for path in (mount.npy, tmpfs, disk, *older)}
        for path in reads:
            peers.read_file("whole", path)
        for _ in range(arguments.rounds):
            for path, done in reads.items():
                done.append(peers.read_file("whole", path))
    ours = reads[mount.npy]
    return [
        table.speeds("whole file, warm", "tmpfs", ours, reads[tmpfs], 1.0),
        table.speeds("", "disk, in the page cache", ours, reads[disk], 0.5),
        *table.since(ours, [read for path in older for read in reads[path]]),
    ]


def older_file(mounts, store, arguments):
    """Returns the same file over an older build, in a list; an empty one without that build."""
    if not arguments.before:
        return []
    with peers.built(arguments.before):
        return [mounts.enter_context(peers.Ours(store)).npy]


class copies:
    """The same bytes as plain files on tmpfs and on disk."""

    def __init__(self, original):
        self.original = original
        self.paths = (TMPFS / "zarrfs-bench.npy", arrays.FOLDER / "plain.npy")

    def __enter__(self):
        for path in self.paths:
            shutil.copyfile(self.original, path)
        return self.paths

    def __exit__(self, *_):
        for path in self.paths:
            path.unlink(missing_ok=True)
