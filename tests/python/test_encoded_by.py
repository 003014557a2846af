"""Another program replaces an array of which chunks were written on a mount: no chunk comes into the new one.

The chunk that is written is in neither array before, so that its key alone tells nothing.
"""

import errno
import json
import shutil

import numpy as np
import pytest
import zarr

from mounting import zarrfs

KINDS = {
    "type": {"dtype": "<i4"},
    "length": {"dtype": "<f8"},
    "codecs": {"compressors": zarr.codecs.ZstdCodec(level=1)},
    "order": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "chunks": {"chunks": (2,)},
    "fill": {"fill_value": 7},
    "keys": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "v2": {"zarr_format": 2},
}
WORDS = "the array was"


def make(store, **changed):
    """Makes an array without chunks, in the place of any other one."""
    shutil.rmtree(store / "a", ignore_errors=True)
    how = {"shape": (8,), "chunks": (4,), "dtype": "<f4", "fill_value": 0, "zarr_format": 3}
    return zarr.create_array(store / "a", **{"compressors": None, **how, **changed})


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "some.zarr"
    zarr.create_group(path, zarr_format=3)
    make(path)
    return path


@pytest.fixture
def upper(tmp_path):
    return tmp_path / "upper"


def chunks(store):
    """Returns the chunks of the array, without files under temporary names."""
    return [path for path in (store / "a").rglob("*") if path.is_file() and path.name in ("0", "c.0", "0.0")]


class Library:
    """Writes by zarr-python, which has read the metadata when it opened the array. It renames files: the kernel would repeat
    a rename that is ESTALE."""

    refused = errno.EIO

    def __init__(self, mount):
        self.array = zarr.open_array(mount.path / "a", mode="r+")

    def write(self):
        self.array[0:4] = [1, 2, 3, 4]


class Decoded:
    """Writes a decoded file, which is open meanwhile."""

    refused = errno.ESTALE

    def __init__(self, mount):
        self.path = mount.files / "a/a.raw"
        self.file = open(self.path, "r+b", buffering=0)

    def write(self):
        with self.file as file:
            file.write(np.arange(1, 5, dtype="<f4").tobytes())


WRITERS = [Library, Decoded]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_puts_no_chunk_of_another_array(store, upper, mounted, writer, kind):
    mount = mounted(store, "--cow", upper)
    writer(mount).write()
    make(store, **KINDS[kind])
    for options in (["--dry-run"], []):
        refused = zarrfs("commit", *options, mount.path, check=False)
        assert refused.returncode == 1, refused
        assert refused.stdout.startswith(f"a/c/0: {WORDS}"), refused
        assert len(refused.stdout.splitlines()) == 1
    assert chunks(store) == []
    zarrfs("discard", mount.path, "a/c/0")
    assert zarrfs("diff", mount.path).stdout == ""


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_write_through_stores_no_chunk_of_another_array(store, upper, mounted, writer, kind):
    mount = mounted(store, "--write-through", "--cow", upper)
    program = writer(mount)
    make(store, **KINDS[kind])
    with pytest.raises(OSError) as error:
        program.write()
    assert error.value.errno == writer.refused
    assert chunks(store) == []
    said = (mount.path / ".zarrfs/errors").read_text()
    assert WORDS in said or "the metadata changed while a file was open" in said, said


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_refuses_chunks_of_a_library_with_an_older_array(store, upper, mounted, kind):
    mount = mounted(store, "--cow", upper)
    library = Library(mount)
    make(store, **KINDS[kind])
    library.write()
    refused = zarrfs("commit", mount.path, check=False)
    assert refused.returncode == 1 and refused.stdout.startswith(f"a/c/0: {WORDS}"), refused


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("options", [["--cow"], ["--write-through", "--cow"]])
def test_new_attributes_and_shapes_of_others_do_not_conflict(store, upper, mounted, writer, options):
    mount = mounted(store, *options, upper)
    program = writer(mount)
    array = zarr.open_array(store / "a", mode="r+")
    array.attrs["by"] = "another program"
    array.resize((16,))
    program.write()
    zarrfs("commit", mount.path)
    array = zarr.open_array(store / "a", mode="r")
    assert array[0:4].tolist() == [1, 2, 3, 4]
    assert array.shape == (16,) and array.attrs["by"] == "another program"


def test_the_conflict_survives_a_kill_and_yields_to_force(store, upper, daemon, mounted):
    mount = daemon(store, "--cow", upper)
    Library(mount).write()
    mount.kill()
    make(store, dtype="<i4")
    for place in (upper, mounted(store, "--cow", upper).path):
        report = json.loads(zarrfs("commit", "--json", place, check=False).stdout)
        assert [key for key, _ in report["conflicts"]] == ["a/c/0"], report
        assert (report["put"], report["left"]) == (0, 1)
    assert chunks(store) == []
    assert zarrfs("commit", "--force", place).stdout.startswith("1 put")
    assert [path.name for path in chunks(store)] == ["0"]


def test_an_array_that_is_replaced_on_the_mount_is_committed(store, upper, mounted):
    mount = mounted(store, "--cow", upper)
    Library(mount).write()
    other = zarr.create_array(
        mount.path / "a", shape=(8,), chunks=(4,), dtype="<i4", compressors=None, overwrite=True
    )
    other[:] = np.arange(8)
    zarrfs("commit", mount.path)
    assert zarr.open_array(store / "a", mode="r")[:].tolist() == list(range(8))
    # And once more: what the program wrote is what it knows.
    make(store)
    other[0:4] = [9, 9, 9, 9]
    refused = zarrfs("commit", mount.path, check=False)
    assert refused.returncode == 1 and refused.stdout.startswith(f"a/c/0: {WORDS}"), refused


def test_a_new_store_has_no_chunk_of_another_array(store, upper, mounted, tmp_path):
    mount = mounted(store, "--cow", upper)
    Library(mount).write()
    make(store, dtype="<i4")
    refused = zarrfs("commit", "--to", tmp_path / "new.zarr", mount.path, check=False)
    assert refused.returncode == 1 and refused.stdout.startswith(f"a/c/0: {WORDS}"), refused
    assert not list((tmp_path / "new.zarr").iterdir())
    zarrfs("discard", mount.path, "a/c/0")
    zarrfs("commit", "--to", tmp_path / "new.zarr", mount.path)
    assert zarr.open_array(tmp_path / "new.zarr/a", mode="r").dtype == np.int32
