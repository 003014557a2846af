"""Programs that write one array while others use it; test_concurrency starts each as a process of its own.

    concurrent_writers.py zarr ARRAY END PART PARTS
                                              writes numbers, ever higher ones, to the chunks PART, PART + PARTS, ...
                                              until END exists
    concurrent_writers.py tensorstore ARRAY PART PARTS
                                              writes the rows PART, PART + PARTS, ... of the whole array, once
    concurrent_writers.py pwrite|map FILE SKIP COUNT SECONDS PART PARTS
                                              opens, writes and closes a file of COUNT numbers of eight bytes, which SKIP
                                              bytes precede, again and again: to the numbers PART, PART + PARTS, ..., each
                                              of which it finds as it left it; prints how many it has written
    concurrent_writers.py keys FOLDER FIRST SECONDS PART PARTS
                                              replaces the chunks of CHUNK numbers FIRST + PART, FIRST + PART + PARTS, ...
                                              (16 in all) by temporary files
    concurrent_writers.py attributes FILE SECONDS PART
                                              counts in an attribute of its own, by a temporary file

What is EBUSY, since another file of the array is open for writing, is tried again.
"""

import errno
import itertools
import json
import mmap
import os
import random
import sys
import time
from pathlib import Path

CHUNK = 64


def write_by_zarr(path, end, part, parts):
    import numpy as np
    import zarr

    array = zarr.open_array(path, mode="r+")
    chunks = array.shape[0] // CHUNK
    # Higher than what the array holds at first.
    for number in itertools.count(chunks + int(part), int(parts)):
        if Path(end).exists():
            return
        start = number % chunks * CHUNK
        array[start : start + CHUNK] = np.full(CHUNK, number)


def write_by_tensorstore(path, part, parts):
    import numpy as np
    import tensorstore

    kvstore = {"driver": "file", "path": path}
    array = tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result()
    for row in range(part, array.shape[0], parts):
        array[row].write(np.full(array.shape[1], row + 1)).result()


def until_free(act):
    """Does something until it is not EBUSY."""
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.002)


def write_numbers(kind, path, skip, count, seconds, part, parts):
    draw = random.Random(part)
    own = range(part, count, parts)
    values = dict.fromkeys(own, 0)
    end = time.monotonic() + seconds
    written = 0
    while time.monotonic() < end:
        number = draw.choice(own)
        file = until_free(lambda: os.open(path, os.O_RDWR))
        place = skip + 8 * number
        expected = values[number]
        values[number] = written = written + 1
        if kind == "pwrite":
            found = int.from_bytes(os.pread(file, 8, place), "little")
            os.pwrite(file, written.to_bytes(8, "little"), place)
        else:
            with mmap.mmap(file, 0) as pages:
                found = int.from_bytes(pages[place : place + 8], "little")
                pages[place : place + 8] = written.to_bytes(8, "little")
        os.close(file)
        if found != expected:
            sys.exit(f"{kind} {part}: number {number} is {found}, and was left as {expected}, after {written} writes")
    print(written)


def replace_keys(folder, first, seconds, part, parts):
    draw = random.Random(part)
    own = [Path(folder) / str(chunk) for chunk in range(first + part, 16, parts)]
    values = dict.fromkeys(own, bytes(8 * CHUNK))
    end = time.monotonic() + seconds
    written = 0
    while time.monotonic() < end:
        key = draw.choice(own)
        found = key.read_bytes()
        if found != values[key]:
            sys.exit(f"{key} is {found[:8]}, and was left as {values[key][:8]}, after {written} writes")
        written += 1
        new = key.with_name(f"{key.name}.{part}.partial")
        until_free(lambda: new.write_bytes(written.to_bytes(8, "little") * CHUNK))
        until_free(lambda: os.rename(new, key))
        values[key] = written.to_bytes(8, "little") * CHUNK
    print(written)


def count_in_attributes(file, seconds, part):
    file, name = Path(file), f"count{part}"
    new = file.with_name(f"attributes.json.{part}.tmp")
    end = time.monotonic() + seconds
    written = 0
    while time.monotonic() < end:
        attributes = json.loads(file.read_text())
        if attributes.get(name, 0) != written:
            sys.exit(f"{name} is {attributes.get(name)}, and was left as {written}")
        new.write_text(json.dumps({**attributes, name: written + 1}))
        try:
            os.rename(new, file)
            written += 1
        except OSError as error:
            # Another program was first.
            if error.errno != errno.ESTALE:
                raise
    print(written)


if __name__ == "__main__":
    kind, path, *rest = sys.argv[1:]
    if kind == "zarr":
        write_by_zarr(path, *rest)
    elif kind in ("pwrite", "map"):
        write_numbers(kind, path, *map(int, rest))
    elif kind == "keys":
        replace_keys(path, *map(int, rest))
    elif kind == "attributes":
        count_in_attributes(path, *map(int, rest))
    else:
        write_by_tensorstore(path, *map(int, rest))
