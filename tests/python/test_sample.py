"""The sample stores: what a newcomer sees, in both views and in the control directory."""

import json
import os
import shutil

import numpy as np
import pytest
import xarray
import zarr
from zarr.core.metadata import ArrayV3Metadata

import layout
from mounting import ROOT, Mount, is_mounted, zarrfs

ARRAYS = ["lat", "lon", "pr", "psl", "survey/volume", "tas", "time"]


def test_store_view_lists_the_stored_keys(sample, mounted):
    mount = mounted(sample)
    assert layout.walk(mount.path) == layout.walk(sample)
    assert ".zarrfs" not in os.listdir(mount.path)
    assert (mount.path / ".zarrfs").is_dir()


def test_files_view_lists_groups_arrays_and_their_files(sample, mounted):
    files = mounted(sample, "--view", "files").path
    expected = {"attributes.json", "volume", "metadata.json"}
    assert expected <= set(os.listdir(files / "survey"))
    for array in ARRAYS:
        name = array.rpartition("/")[2]
        expected = {"attributes.json", f"{name}.npy", "metadata.json"}
        assert expected == set(os.listdir(files / array))
    assert sorted(os.listdir(files / "tas" / "chunks")) == sorted(
        f"{t}.{y}.{x}.npy" for t in range(2) for y in range(2) for x in range(2)
    )


def test_every_view_is_reached_through_the_control_directory(sample, mounted):
    for view in ("store", "files"):
        mount = mounted(sample, "--view", view)
        control = mount.path / ".zarrfs"
        assert layout.walk(control / "store") == layout.walk(sample)
        assert (control / "files" / "tas" / "tas.npy").is_file()
        assert json.loads((control / "stats.json").read_text())
        assert json.loads((control / "mount.json").read_text())


@pytest.mark.parametrize("view", ["store", "files"])
@pytest.mark.parametrize("name", ["climate.zarr", "relief.zarr"])
def test_xarray_opens_the_samples(mounted, name, view):
    store = ROOT / "samples" / name
    shown = mounted(store, "--view", view).path / ".zarrfs/store"
    for group in (None, "survey") if name == "climate.zarr" else (None,):
        assert xarray.open_zarr(store, group=group).load().data_vars
        for options in ({}, {"consolidated": False}, {"mask_and_scale": False}):
            opened = xarray.open_zarr(shown, group=group, **options)
            assert opened.identical(xarray.open_zarr(store, group=group, **options))


def test_xarray_and_files_agree_on_missing_values(sample, mounted):
    shutil.rmtree(sample / "tas/c/1")
    mount = mounted(sample)
    for store in (sample, mount.path):
        opened = xarray.open_zarr(store).tas
        assert opened.encoding["_FillValue"] == np.float32(1e20)
        assert np.isnan(opened[6:]).all() and not np.isnan(opened[:6]).any()
        np.testing.assert_array_equal(np.load(mount.files / "tas/tas.cf.npy"), opened)


@pytest.mark.parametrize("array", ARRAYS)
def test_decoded_array_equals_zarr_python(sample, mounted, array):
    expected = zarr.open_group(sample, mode="r")[array][...]
    files = mounted(sample).files
    mapped = np.load(layout.decoded(files, sample, array, "npy"), mmap_mode="r")
    np.testing.assert_array_equal(mapped, expected)
    assert mapped.dtype == expected.dtype
    raw = layout.decoded(files, sample, array, "raw").read_bytes()
    assert raw == expected.tobytes()


@pytest.mark.parametrize("array", ARRAYS)
def test_chunk_files_put_together_are_the_array(sample, mounted, array):
    opened = zarr.open_group(sample, mode="r")[array]
    chunk_shape = opened.shards or opened.chunks
    folder = layout.array_folder(mounted(sample).files, array) / "chunks"
    built = np.zeros(opened.shape, opened.dtype)
    for index in layout.chunk_indices(opened.shape, chunk_shape):
        name = layout.chunk_name(index)
        chunk = np.load(folder / f"{name}.npy", mmap_mode="r")
        assert (folder / f"{name}.raw").read_bytes() == chunk.tobytes()
        built[layout.chunk_box(index, opened.shape, chunk_shape)] = chunk
    np.testing.assert_array_equal(built, opened[...])


def test_metadata_of_the_files_view_is_final_v3(sample, sample_v2, mounted):
    for store in (sample, sample_v2):
        files = mounted(store).files
        for name, array in zarr.open_group(store, mode="r").arrays():
            document = json.loads((files / name / "metadata.json").read_text())
            metadata = ArrayV3Metadata.from_dict(document)
            assert metadata.shape == array.shape
            native = metadata.data_type.to_native_dtype()
            assert native.newbyteorder("=") == array.dtype.newbyteorder("=")
            assert metadata.attributes == array.attrs.asdict()
            attributes = json.loads((files / name / "attributes.json").read_text())
            assert attributes == array.attrs.asdict()


def test_attributes_of_groups(sample, mounted):
    files = mounted(sample).files
    root = zarr.open_group(sample, mode="r")
    assert json.loads((files / "attributes.json").read_text()) == root.attrs.asdict()
    document = json.loads((files / "survey" / "metadata.json").read_text())
    assert (document["zarr_format"], document["node_type"]) == (3, "group")
    assert document["attributes"] == root["survey"].attrs.asdict()


def test_a_root_array_is_named_after_its_store(tmp_path, mounted):
    data = np.arange(12, dtype="<i4").reshape(3, 4)
    for store in (tmp_path / "plain.zarr", tmp_path / "bare"):
        zarr.save_array(store, data)
        files = mounted(store, "--view", "files").path
        name = store.name.removesuffix(".zarr")
        np.testing.assert_array_equal(np.load(files / f"{name}.npy"), data)


@pytest.mark.parametrize("view", ["store", "files"])
def test_a_mount_is_read_only(sample, mounted, view):
    path = mounted(sample, "--view", view).path
    document = path / {"store": "zarr.json", "files": "metadata.json"}[view]
    for change in (
        lambda: (path / "new").write_text("x"),
        lambda: document.write_text("x"),
        lambda: document.unlink(),
        lambda: (path / "folder").mkdir(),
    ):
        with pytest.raises(OSError, match="Read-only|Permission|not permitted"):
            change()


def test_the_samples_equal_those_that_make_py_writes(tmp_path):
    import runpy

    make = runpy.run_path(str(ROOT / "samples" / "make.py"))
    make["climate"](tmp_path / "climate.zarr")
    make["relief"](tmp_path / "relief.zarr")
    make["cells"](tmp_path / "cells.zarr")
    for name in ("climate.zarr", "relief.zarr", "cells.zarr"):
        assert layout.walk(tmp_path / name) == layout.walk(ROOT / "samples" / name)
        made = zarr.open_group(tmp_path / name, mode="r")
        kept = zarr.open_group(ROOT / "samples" / name, mode="r")
        for path, node in made.members(max_depth=None):
            assert node.attrs.asdict() == kept[path].attrs.asdict()
            if isinstance(node, zarr.Array):
                np.testing.assert_allclose(node[...], kept[path][...], rtol=1e-2)


def test_a_mount_survives_a_second_mount_that_fails(sample, mounted):
    mount = mounted(sample)
    failed = zarrfs("mount", sample, mount.path, check=False)
    assert failed.returncode != 0
    assert failed.stderr.strip()
    assert layout.walk(mount.path) == layout.walk(sample)


def test_a_missing_store_is_not_mounted(tmp_path):
    (tmp_path / "dir").mkdir()
    failed = zarrfs("mount", tmp_path / "none.zarr", tmp_path / "dir", check=False)
    assert failed.returncode == 2
    assert "none.zarr" in failed.stderr
    assert not is_mounted(tmp_path / "dir")


def test_unmounting_by_others_ends_the_daemon(sample, daemon):
    import signal
    import subprocess

    def by_umount(mount):
        subprocess.run(["umount", mount.path], check=True)

    def by_fusermount(mount):
        subprocess.run(["fusermount3", "-u", mount.path], check=True)

    def by_signal(mount):
        mount.process.send_signal(signal.SIGTERM)

    for unmount in (by_umount, by_fusermount, by_signal):
        if unmount is by_umount and os.geteuid() != 0:
            continue
        mount = daemon(sample)
        unmount(mount)
        assert mount.process.wait(10) == 0
        assert not is_mounted(mount.path)


def test_mounting_twice_in_a_row_leaves_nothing(sample):
    for _ in range(5):
        with Mount(sample) as mount:
            assert (mount.path / "zarr.json").is_file()
        assert not mount.path.exists()
