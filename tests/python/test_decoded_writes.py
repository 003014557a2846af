"""What numpy writes into decoded files zarr-python reads, and the other way round, before a commit and after: arrays of
every kind that is stored differently.
"""

import errno
import os

import numpy as np
import pytest
import zarr
from zarr.codecs import TransposeCodec

import layout
from mounting import zarrfs

TURNED = {"filters": [TransposeCodec(order=(1, 0))]}
PLAIN = {"compressors": None}
# Chunks are cut at the edge; `big` has several pages.
KINDS = {
    "big-endian": ((13, 7), ">i2", {"chunks": (4, 3), "fill_value": 7, **PLAIN}),
    "big": ((3000,), "<i4", {"chunks": (500,), **PLAIN}),
    "scalar": ((), "<f8", {"fill_value": 1.5, **PLAIN}),
    "packed": ((20,), "<f8", {"chunks": (6,), "fill_value": float("nan")}),
}
OF_VERSION = {
    2: {
        "fortran": ((9, 10), "<c8", {"chunks": (3, 4), "order": "F", **PLAIN}),
        "packed-fortran": ((5, 6, 4), "<u2", {"chunks": (2, 4, 4), "order": "F"}),
    },
    3: {
        "turned": ((9, 10), "<c8", {"chunks": (3, 4), **TURNED, **PLAIN}),
        "packed-turned": ((9, 10), ">i4", {"chunks": (2, 4), **TURNED}),
        "shards": ((10, 35), "|u1", {"chunks": (5, 5), "shards": (10, 15), **PLAIN}),
        "packed-shards": ((16, 13), "<u2", {"chunks": (4, 3), "shards": (8, 6), "fill_value": 9}),
    },
}
ROUNDS = 3


class Written:
    """An array of the mount, and what all who wrote to it have made of it."""

    def __init__(self, store, mount, name, draw):
        self.store, self.mount, self.name, self.draw = store, mount, name, draw
        self.values = stored(store, name)

    def box(self):
        ends = [np.sort(self.draw.choice(length + 1, 2, replace=False)) for length in self.values.shape]
        return tuple(slice(*pair) for pair in ends)

    def noise(self, shape):
        return random_bits(self.draw, shape, self.values.dtype)

    def map_npy(self):
        """Writes a box by a map: the kernel writes whole pages."""
        mapped, box = np.load(self.decoded("npy"), mmap_mode="r+"), self.box()
        mapped[box] = self.values[box] = self.noise(self.values[box].shape)
        mapped.flush()

    def write_raw(self):
        """Writes bytes from the middle of one element to that of another one."""
        flat = self.values.reshape(-1).view("u1")
        first, last = np.sort(self.draw.choice(flat.size + 1, 2, replace=False))
        flat[first:last] = self.noise(self.values.shape).reshape(-1).view("u1")[first:last]
        with open(self.decoded("raw"), "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), flat[first:last].tobytes(), first)

    def write_stored(self):
        """Writes a box by zarr-python, through the store view."""
        box = self.box()
        self.values[box] = self.noise(self.values[box].shape)
        zarr.open_array(self.mount.path / self.name, mode="r+")[box] = self.values[box]

    def decoded(self, suffix):
        return layout.decoded(self.mount.files, self.store, self.name, suffix)

    def check(self, store):
        found = {
            "npy": np.load(self.decoded("npy")),
            "raw": np.fromfile(self.decoded("raw"), self.values.dtype),
            "zarr-python": stored(store, self.name),
        }
        for reader, array in found.items():
            assert array.tobytes() == self.values.tobytes(), (self.name, reader)


def random_bits(draw, shape, dtype):
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw.bytes(size), dtype).reshape(shape)


def stored(store, name):
    """Returns what zarr-python reads, in the order of bytes that decoded files have."""
    array = zarr.open_array(store / name, mode="r")
    return np.array(array[...], array.dtype.newbyteorder("<"), order="C")


@pytest.mark.parametrize("version", OF_VERSION)
def test_numpy_and_zarr_python_read_writes_of_the_other(version, tmp_path, mounted):
    store, draw = tmp_path / "some.zarr", np.random.default_rng(version)
    root, kinds = zarr.create_group(store, zarr_format=version), KINDS | OF_VERSION[version]
    for name, (shape, dtype, options) in kinds.items():
        array = root.create_array(name, shape=shape, dtype=dtype, **options)
        array[...] = random_bits(draw, shape, np.dtype(dtype))
        # One chunk is missing.
        (store / name / array.metadata.encode_chunk_key((0,) * len(shape))).unlink()
    mount = mounted(store, "--cow", tmp_path / "upper")
    arrays = [Written(store, mount, name, draw) for name in kinds]
    for array in arrays:
        for _ in range(ROUNDS):
            for write in draw.permutation([array.map_npy, array.write_raw, array.write_stored]):
                write()
                array.check(mount.path)
    zarrfs("commit", mount.path)
    for array in arrays:
        array.check(store)


def move(mount):
    os.rename(mount.path / "a", mount.path / "b")
    return mount.path / "b"


def lengthen(mount):
    zarr.open_array(mount.path / "a", mode="r+").resize((12,))
    return mount.path / "a"


@pytest.mark.parametrize("change", [move, lengthen])
def test_a_file_of_a_moved_or_resized_array_is_not_written(change, tmp_path, mounted):
    """Elements that were written before the change are kept."""
    zarr.create_group(tmp_path / "some.zarr").create_array("a", data=np.arange(8, dtype="i4"), chunks=(3,))
    mount = mounted(tmp_path / "some.zarr", "--cow", tmp_path / "upper")
    with open(mount.files / "a/a.raw", "r+b", buffering=0) as file:
        file.write(np.full(4, 7, "i4").tobytes())
        array = change(mount)
        with pytest.raises(OSError) as refused:
            file.write(np.full(4, 9, "i4").tobytes())
        assert refused.value.errno in (errno.ESTALE, errno.ENOENT)
    for _ in range(2):
        assert zarr.open_array(array, mode="r")[:8].tolist() == [7, 7, 7, 7, 4, 5, 6, 7]
        zarrfs("commit", mount.path)
