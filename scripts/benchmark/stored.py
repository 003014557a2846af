"""A stored file of a local store, compared with the file itself: read by the kernel (--passthrough), and by zarrfs."""

import os
from contextlib import ExitStack

import arrays
import peers
import table

RANDOM_READS = 50_000
MODES = {"whole": (), "random": (RANDOM_READS, 1)}
NAMES = {"whole": "whole stored file", "random": "4 KiB of it"}


def run(arguments):
    store = arrays.FOLDER / f"stored-{arguments.size}.zarr"
    file = store / "object"
    if not file.exists():
        store.mkdir(parents=True, exist_ok=True)
        (store / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
        file.write_bytes(os.urandom(arguments.size << 20))
    done = {(mode, who): [] for mode in MODES for who in ("plain", "passthrough", "served")}
    for _ in range(arguments.rounds):
        with ExitStack() as mounts:
            paths = {
                "plain": file,
                "passthrough": mounts.enter_context(peers.Ours(store, "--passthrough")).path / "object",
                "served": mounts.enter_context(peers.Ours(store)).path / "object",
            }
            for who, path in paths.items():
                peers.read_file("forget", path)
                # The file itself is in the page cache for all of them.
                peers.read_file("whole", file)
                for mode, more in MODES.items():
                    done[mode, who].append(peers.read_file(mode, path, *more))
    return [
        table.speeds(case, "plain file", done[mode, who], done[mode, "plain"], aim)
        for mode in MODES
        for who, aim, case in (
            ("passthrough", 0.95, f"{NAMES[mode]}, --passthrough"),
            ("served", None, f"{NAMES[mode]}, cold"),
        )
    ]
