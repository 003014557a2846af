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
    done = {"ours": [], "tmpfs": [], "disk": [], "before": []}
    for number in range(arguments.rounds):
        with ExitStack() as mounts:
            # The kernel uses larger pages for files that are read later, so each round reads all of them again, and the
            # builds take turns at being first.
            files = [("ours", mounts.enter_context(peers.Ours(store)).npy)]
            if arguments.before:
                with peers.built(arguments.before):
                    files.append(("before", mounts.enter_context(peers.Ours(store)).npy))
            files = files[:: -1 if number % 2 else 1]
            for _, path in files:
                peers.read_file("whole", path)
            paths = mounts.enter_context(copies(files[0][1]))
            for name, path in (*files, *zip(("tmpfs", "disk"), paths)):
                peers.read_file("whole", path)
                done[name].append(peers.read_file("whole", path))
    return [
        table.speeds("whole file, warm", "tmpfs", done["ours"], done["tmpfs"], 1.0),
        table.speeds("", "disk, in the page cache", done["ours"], done["disk"], 0.5),
        *table.since(done["ours"], done["before"]),
    ]


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
