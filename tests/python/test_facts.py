"""Facts on the entries of a mount, which its extended attributes tell."""

import errno
import json
import os
import subprocess

import numpy as np
import pytest
import zarr

import mounting


@pytest.fixture
def made(tmp_path):
    store = tmp_path / "facts.zarr"
    root = zarr.create_group(store, zarr_format=3)
    array = root.create_array("a", shape=(5, 4), chunks=(2, 4), dtype="int16", fill_value=7, compressors=zarr.codecs.GzipCodec())
    array[0:2] = np.arange(8).reshape(2, 4)
    array[4:5] = 1
    # Chunk 2 is no gzip.
    (store / "a/c/2/0").write_bytes(b"no gzip")
    (store / "a/notes.txt").write_text("hello")
    return store


def fact(path, name):
    try:
        return os.getxattr(path, f"user.zarrfs.{name}").decode()
    except OSError as error:
        assert error.errno == errno.ENODATA, error
        return None


def test_facts_on_nodes(made, mounted):
    mount = mounted(made)
    for view in (mount.files, mount.path):
        assert fact(view, "kind") == "group" and fact(view, "dialect") == "v3"
        array = view / "a"
        assert [fact(array, name) for name in ("kind", "dtype", "shape", "chunk")] == ["array", "int16", "5,4", "2,4"]
        assert [codec["name"] for codec in json.loads(fact(array, "codec"))] == ["bytes", "gzip"]
        assert fact(array, "status") is None and fact(view, "dtype") is None
    assert fact(mount.files / "a/a.npy", "dtype") == "int16"
    assert fact(mount.files / "a/metadata.json", "kind") == "document"


def test_facts_on_chunks(made, mounted):
    mount = mounted(made)
    chunks = mount.files / "a/chunks"
    status = [fact(chunks / f"{number}.0.npy", "status") for number in range(3)]
    assert status == ["stored", "missing", "corrupt"]
    length = str((made / "a/c/0/0").stat().st_size)
    for chunk in (chunks / "0.0.raw", mount.path / "a/c/0/0"):
        assert fact(chunk, "kind") == "chunk" and fact(chunk, "stored_bytes") == length
        assert fact(chunk, "shape") == "2,4" and fact(chunk, "etag")
    assert fact(chunks / "2.0.npy", "shape") == "1,4"
    assert fact(chunks / "1.0.npy", "stored_bytes") is None
    assert fact(mount.path / "a/c/2/0", "status") == "corrupt"


def test_facts_on_other_keys(made, mounted):
    mount = mounted(made)
    kinds = {"a/zarr.json": "document", "a/notes.txt": "key", "a/c": "folder"}
    assert {path: fact(mount.path / path, "kind") for path in kinds} == kinds
    assert fact(mount.path / "a/notes.txt", "stored_bytes") == "5"
    assert fact(mount.path / ".zarrfs", "kind") is None


def test_a_check_of_a_mount_finds_the_same_as_one_of_its_store(made, mounted, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (made / "a/out").symlink_to(tmp_path / "elsewhere")
    (made / "a/gone").symlink_to("nowhere")

    def found(place):
        command = [mounting.program(), "check", "--data", "--json", str(place)]
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        assert out.returncode == 1
        return {(finding["code"], finding["key"]) for finding in json.loads(out.stdout)["findings"]}

    expected = {
        ("chunk-corrupt", "a/c/2/0"),
        ("orphan-key", "a/notes.txt"),
        ("link-leaves-store", "a/out"),
        ("link-dangling", "a/gone"),
    }
    assert found(made) == expected
    assert found(mounted(made).path) == expected
