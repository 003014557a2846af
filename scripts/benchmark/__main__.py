"""Measures zarrfs and its peers in one run, and prints ratios with their aims.

    scripts/bench [--rounds N] [--size MIB] [--share PART] [--only WORD] [--before PROGRAM] [PART...]

Every number is a median over interleaved rounds: in each round every peer has its turn, and a ratio is the
median of the rounds' ratios. So a busy minute affects all peers. The arrays stay in target/bench. With --before, an
older build of zarrfs is one more peer of every part except memory: no part may be below 0.97 of it.
"""

import argparse
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "python")]

import changes
import check
import cold
import costs
import formats
import icechunk_reads
import listing
import memory
import plain
import random_reads
import remote
import rows
import scale
import stored
import table
import walk
import warm
import write

PARTS = {
    "cold": cold.run,
    "warm": warm.run,
    "random": random_reads.run,
    "formats": formats.run,
    "list": listing.computed,
    "memory": memory.run,
    "rows": rows.run,
    "list-stored": listing.stored,
    "stored": stored.run,
    "costs": costs.run,
    "walk": walk.run,
    "remote": remote.run,
    "write": write.run,
    "changes": changes.run,
    "scale": scale.run,
    "plain": plain.run,
    "check": check.run,
    "icechunk": icechunk_reads.run,
}
EXTRA = {"formats", "list-stored", "stored", "costs", "walk", "remote", "write", "changes", "scale", "plain", "check", "icechunk"}


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each part")
    parser.add_argument("--size", type=int, default=256, help="MiB of an array")
    parser.add_argument(
        "--only", default="", help="only arrays whose name has this in it"
    )
    parser.add_argument("--share", type=float, default=1, help="part of the full size of what `scale` makes")
    parser.add_argument("--before", help="another build of zarrfs, measured as a peer")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"{', '.join(PARTS)}; all but {', '.join(EXTRA)} if none is given",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}")
    missed = 0
    for part in arguments.parts or [name for name in PARTS if name not in EXTRA]:
        rows = PARTS[part](arguments)
        print(f"\n{part}")
        print("\n".join(table.lines(rows)), flush=True)
        missed += sum(row.missed for row in rows)
    print(f"\n{missed} aims missed")


if __name__ == "__main__":
    main()
