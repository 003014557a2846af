"""Stores by other writers: decoded files against the manifest, the store view against the store."""

import subprocess
import zipfile

import numpy as np
import zarr

import corpus


def test_decoded_arrays_have_the_manifests_bytes(
    corpus_store, corpus_folder, mounted, corpus_results
):
    name, entries = corpus_store
    store = corpus_folder / name
    mount = mounted(store)
    results = [corpus.check(entry, mount.files, store) for entry in entries]
    corpus_results.extend(results)
    bad = [
        f"{result.entry['id']}: {result.status}: {result.detail}"
        for result in results
        if result.status in ("wrong", "error")
    ]
    assert not bad, "\n".join(bad)


# Invariant (stores): The store view has the same bytes as the store, except for documents that consolidated metadata
# replace where the store cannot list.
def test_store_view_is_the_store(corpus_store, corpus_folder, mounted, tmp_path):
    name, entries = corpus_store
    store = corpus_folder / name
    mount = mounted(store)
    diff = subprocess.run(
        ["diff", "-r", folder_of(store, tmp_path), mount.path],
        capture_output=True,
        text=True,
    )
    assert (diff.returncode, diff.stdout, diff.stderr) == (0, "", "")
    for entry in entries:
        same_to_zarr_python(entry, store, mount.path)


def folder_of(store, folder):
    """Returns the store's own folder, or unpacks its archive: of keys written twice the last stays."""
    if store.is_dir():
        return store
    with zipfile.ZipFile(store) as archive:
        archive.extractall(folder)
    return folder


def same_to_zarr_python(entry, store, mount):
    """Compares an array read by zarr-python through the mount with the same read from the store."""
    try:
        expected = read(store, entry["array"])
    except Exception:
        # What zarr-python cannot read from the store is no test of the mount.
        return
    found = read(mount, entry["array"])
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.hasobject:
        np.testing.assert_array_equal(found, expected)
    elif entry["expect"] != "any":
        # Bit for bit, since NaN is not equal to itself.
        assert found.tobytes() == expected.tobytes()


def read(store, array):
    """Reads an array with zarr-python, of a huge one only the first corner."""
    opened = zarr.open_array(store, path=array.strip("/"), mode="r")
    return np.asarray(opened[tuple(slice(0, 50) for _ in opened.shape)])
