"""A peer of the benchmark: reads a whole array once, in a process of its own without anything cached.

    direct_read.py tensorstore|zarr STORE [ENDPOINT]

STORE is a directory, or with ENDPOINT a public s3:// URL. Prints seconds, bytes and CPU seconds;
imports are not counted.
"""

import sys
import time


def tensorstore(store, endpoint):
    """Returns a function that reads with tensorstore."""
    import tensorstore

    bucket, _, path = store.removeprefix("s3://").partition("/")
    place = {
        "driver": "s3",
        "bucket": bucket,
        "path": f"{path}/",
        "endpoint": endpoint,
        "aws_region": "us-east-1",
        "aws_credentials": {"type": "anonymous"},
    }
    return lambda: tensorstore.open({"driver": "zarr3", "kvstore": place}).result().read().result()


def zarr(store, endpoint=None):
    """Returns a function that reads with zarr-python: a URL through fsspec and s3fs."""
    import zarr

    if endpoint is None:
        return lambda: zarr.open_array(store, mode="r")[...]
    import s3fs  # noqa: F401 fsspec would import it within the time that counts

    options = {"anon": True, "endpoint_url": endpoint}
    return lambda: zarr.open_array(store, mode="r", storage_options=options)[...]


def main(kind, *place):
    read = {"tensorstore": tensorstore, "zarr": zarr}[kind](*place)
    cpu, start = time.process_time(), time.perf_counter()
    data = read()
    seconds = time.perf_counter() - start
    print(seconds, data.nbytes, time.process_time() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
