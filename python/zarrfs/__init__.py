"""Mounts Zarr stores as directories.

    import zarrfs

    with zarrfs.mount("s3://bucket/data.zarr", anon=True) as mounted:
        tas = mounted.open("surface/tas")        # numpy.memmap: only what is used is fetched
        print(tas[0].mean())

`mount` runs the program of the same name, which is installed beside this module; its manual, zarrfs(7) and
zarrfs-mount(1), says what a mount shows and what each option does.
"""

from ._errors import CommitConflict, Error
from ._mount import Mount, mount
from ._mounts import MountInfo, mounts
from ._options import MountOptions
from ._program import program

__all__ = [
    "CommitConflict",
    "Error",
    "Mount",
    "MountInfo",
    "MountOptions",
    "mount",
    "mounts",
    "program",
]
