"""A peer of the benchmark: zarr-python over a store of a web server with consolidated metadata, in a process of its own.

    direct_web.py open|walk|read URL ARRAY

Opens the store; with `walk` it also looks at all nodes and their attributes, with `read` it reads one element of
ARRAY. Prints seconds, how many nodes or elements, and CPU seconds; imports are not counted.
"""

import sys
import time

import fsspec.implementations.http  # noqa: F401 zarr would import it within the time that counts
import zarr


def main(kind, url, array):
    cpu, start = time.process_time(), time.perf_counter()
    root, count = zarr.open_consolidated(url, mode="r"), 1
    if kind == "walk":
        members = root.members(max_depth=None)
        count = sum(1 for _, node in members if node.attrs.asdict() is not None)
    elif kind == "read":
        found = root[array]
        found[(0,) * found.ndim]
    print(time.perf_counter() - start, count, time.process_time() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
