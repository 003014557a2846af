"""`python -m zarrfs`: the program, with the same arguments."""

import os
import sys

from ._program import program


def main() -> None:
    """Becomes the program; SystemExit with a sentence if there is none."""
    try:
        path = program()
    except FileNotFoundError as missing:
        raise SystemExit(f"zarrfs: {missing}") from None
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
