"""Programs that write one array while others use it; test_concurrency starts each as a process of its own.

    concurrent_writers.py zarr ARRAY END PART PARTS
                                              writes numbers, ever higher ones, to the chunks PART, PART + PARTS, ...
                                              until END exists
    concurrent_writers.py tensorstore ARRAY PART PARTS
                                              writes the rows PART, PART + PARTS, ... of the whole array, once
"""

import itertools
import sys
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


if __name__ == "__main__":
    kind, path, *rest = sys.argv[1:]
    if kind == "zarr":
        write_by_zarr(path, *rest)
    else:
        write_by_tensorstore(path, *map(int, rest))
