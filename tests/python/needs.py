"""What tests need of the machine: /dev/fuse, root, servers, programs, folders that only some machines have.

A test fails where something that it needs is missing, unless the variable ZARRFS_TEST_SKIP names it: words with a
blank or a comma between them. What was skipped is appended to the file that ZARRFS_TEST_SKIPPED names, from which
scripts/test prints one line at its end.
"""

import os
import re
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"


def is_named(*words):
    """Says whether ZARRFS_TEST_SKIP names one of the words."""
    named = re.split(r"[ ,]+", os.environ.get("ZARRFS_TEST_SKIP", ""))
    return any(word in named for word in words)


def skip(word):
    """Skips a test for want of something."""
    file = os.environ.get("ZARRFS_TEST_SKIPPED")
    if file:
        with open(file, "a", encoding="utf-8") as skipped:
            skipped.write(f"{word}\n")
    pytest.skip(f"needs {word}")


def require(word, is_here, *others, source=""):
    """Skips a test where the word, or one of the others, is named; fails it where the thing is missing, which comes
    as `source` tells."""
    if is_named(word, *others):
        skip(word)
    if not is_here:
        text = f"needs {word}, which is missing{source}; ZARRFS_TEST_SKIP={word} skips what needs it"
        pytest.fail(text, pytrace=False)


def address(variable):
    """Returns what scripts/servers says in a variable: ZARRFS_TEST_S3 is of the server `s3`, of which the words
    `s3` and `servers` skip the tests."""
    name = variable.removeprefix("ZARRFS_TEST_").lower().split("_")[0]
    source = " (scripts/servers COMMAND runs a command beside it)"
    require(name, variable in os.environ, "servers", source=source)
    return os.environ[variable]


def shared(name):
    """Returns a folder of ../shared. A clone of the project alone has none: tests on it are then skipped, whether
    or not ZARRFS_TEST_SKIP names `shared`."""
    if is_named("shared") or not (SHARED / name).is_dir():
        skip("shared")
    return SHARED / name
