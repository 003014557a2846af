"""Mounts every store of ../shared/corpus and prints how its arrays read, by dialect and writer.

    scripts/corpus [-v] [WORD...]

With WORDs only stores whose "source/store" contains one of them; -v names every entry that was not read. The
checks and the filter of what has to be readable are in corpus.py. The status is 1 when something
was wrong or had to be readable and was not. The program is $ZARRFS, else target/release/zarrfs.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import corpus
import mounting


def check_store(store, entries):
    """Mounts one store and checks its entries; a store that does not mount counts for each of them."""
    try:
        with mounting.Mount(store) as mount:
            return [corpus.check(entry, mount.files, store) for entry in entries]
    except AssertionError as error:
        reason = OSError(str(error).strip().splitlines()[-1])
        return [corpus.refused(entry, reason) for entry in entries]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("words", nargs="*", metavar="WORD")
    arguments = parser.parse_args()
    if not corpus.FOLDER.is_dir():
        sys.exit(f"{corpus.FOLDER} is absent")
    stores = corpus.by_store(corpus.entries())
    results = []
    with tempfile.TemporaryDirectory(prefix="zarrfs-corpus-") as folder:
        corpus.unpack(folder)
        for name, entries in stores.items():
            if any(word in name for word in arguments.words or [""]):
                results += check_store(Path(folder) / name, entries)
    bad = [result for result in results if result.status in ("wrong", "error")]
    shown = [r for r in results if r.status != "ok"] if arguments.verbose else bad
    for result in shown:
        print(f"{result.status}: {result.entry['id']}: {result.detail}")
    print("\n".join(corpus.table(results)))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
