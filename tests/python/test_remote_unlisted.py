"""Stores on a web server that lists nothing: the tree comes from the metadata, existence from the answers."""

import errno
import os

import numpy as np
import pytest
import zarr

import layout
import mounting
import places
from servers.keys_only import KeysOnly

CONTENT = np.arange(24, dtype="<i4").reshape(4, 6)


@pytest.fixture
def place():
    return places.PLACES["nginx"]()


def make(folder, version, separator, consolidated):
    """Makes a store with an array in a group in a group; its last chunk is not stored."""
    root = zarr.open_group(folder, mode="w", zarr_format=version)
    encoding = {"name": "default" if version == 3 else "v2", "separator": separator}
    array = root.create_group("g").create_group("h").create_array(
        "a", shape=(4, 6), chunks=(2, 3), dtype="<i4", fill_value=7, chunk_key_encoding=encoding
    )
    array[...] = CONTENT
    array[2:, 3:] = 7
    if consolidated:
        zarr.consolidate_metadata(folder, zarr_format=version)
    return array[...]


def check_reads(mount, content):
    npy = layout.decoded(mount.files, mount.store, "g/h/a", "npy")
    assert np.array_equal(np.load(npy), content)
    opened = zarr.open_array(mount.path / "g/h/a", mode="r")
    assert np.array_equal(opened[...], content)


FORMATS = [
    (2, ".", {"0.0", "0.1", "1.0", "1.1"}, "0.0", "1.1"),
    (2, "/", {"0", "1"}, "0/0", "1/1"),
    (3, "/", {"c"}, "c/0/0", "c/1/1"),
    (3, ".", {"c.0.0", "c.0.1", "c.1.0", "c.1.1"}, "c.0.0", "c.1.1"),
]


@pytest.mark.parametrize("version, separator, names, stored, missing", FORMATS)
def test_consolidated_metadata_provide_the_listings(place, tmp_path, version, separator, names, stored, missing):
    content = make(tmp_path / "made.zarr", version, separator, True)
    place.upload(tmp_path / "made.zarr")
    with place.mount() as mount:
        for view in (mount.path, mount.files):
            assert "g" in os.listdir(view)
            assert "h" in os.listdir(view / "g")
            assert "a" in os.listdir(view / "g/h")
        found = set(os.listdir(mount.path / "g/h/a"))
        documents = {"zarr.json"} if version == 3 else {".zarray", ".zattrs"}
        assert found == documents
        array = mount.path / "g/h/a"
        original = place.folder / "g/h/a"
        assert (array / stored).read_bytes() == (original / stored).read_bytes()
        assert not (array / missing).exists()
        check_reads(mount, content)


@pytest.mark.parametrize("version, separator, names, stored, missing", FORMATS)
def test_without_consolidated_metadata_every_path_opens_by_name(place, tmp_path, version, separator, names, stored, missing):
    content = make(tmp_path / "made.zarr", version, separator, False)
    place.upload(tmp_path / "made.zarr")
    with place.mount() as mount:
        check_reads(mount, content)
        assert (mount.path / "g/h/a" / stored).is_file()
        assert not (mount.path / "g/h/a" / missing).exists()
        assert not (mount.path / "g/x").exists() and not (mount.files / "g/x").exists()
        # What was asked for is shown from then on.
        assert "h" in os.listdir(mount.path / "g") and "h" in os.listdir(mount.files / "g")


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("version, separator, names, stored, missing", FORMATS)
def test_a_server_without_folders_is_read(tmp_path, version, separator, names, stored, missing, consolidated):
    content = make(tmp_path / "data", version, separator, consolidated)
    (tmp_path / "server").mkdir()
    server = KeysOnly(tmp_path / "server", tmp_path / "data")
    with server:
        with mounting.Mount(server.url, environment=places.environment({})) as mount:
            check_reads(mount, content)
            array = mount.path / "g/h/a"
            assert not names & set(os.listdir(array))
            assert (array / stored).is_file() and not (array / missing).exists()


def test_listing_chunks_is_an_error_and_chunks_open_by_name(tmp_path):
    content = make(tmp_path / "data", 3, "/", True)
    (tmp_path / "server").mkdir()
    with KeysOnly(tmp_path / "server", tmp_path / "data") as server:
        with mounting.Mount(server.url, "--list", "chunks", environment=places.environment({})) as mount:
            array = mount.files / "g/h/a"
            assert {"a.npy", "chunks"} <= set(os.listdir(array))
            with pytest.raises(OSError) as refused:
                os.listdir(array / "chunks")
            assert refused.value.errno == errno.EOPNOTSUPP
            for name, box in [("0.0", np.s_[:2, :3]), ("1.1", np.s_[2:, 3:])]:
                assert (array / f"chunks/{name}.raw").read_bytes() == content[box].tobytes()


def test_keys_outside_of_nodes_are_read(place, tmp_path):
    make(tmp_path / "made.zarr", 3, "/", True)
    keys = ["notes.txt", "extra/notes.txt", "g/extra/deep/notes.txt", "g/h/a/extra/notes.txt"]
    for key in keys:
        file = tmp_path / "made.zarr" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(key)
    place.upload(tmp_path / "made.zarr")
    with place.mount() as mount:
        for key in keys:
            assert (mount.path / key).read_text() == key
            assert not (mount.files / key).exists()
        assert not (mount.path / "extra/others.txt").exists()
    # A server that knows no folders has no answer for those on the way: the key is read where it is asked for as a whole.
    (tmp_path / "server").mkdir()
    with KeysOnly(tmp_path / "server", tmp_path / "made.zarr") as server:
        for key in keys:
            assert mounting.zarrfs("cat", f"{server.url}/{key}").stdout == key
