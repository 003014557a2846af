"""Consolidated metadata that `zarrfs check --fix consolidated` has made, read by zarr-python."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import zarr

import mounting


def make(store, zarr_format):
    """Makes a hierarchy with metadata that were consolidated before most of it was made."""
    root = zarr.create_group(store, zarr_format=zarr_format)
    root.attrs["of"] = "root"
    zarr.consolidate_metadata(store)
    group = zarr.open_group(store, mode="r+", use_consolidated=False).create_group("b")
    group.create_group("empty")
    for above in (root, group):
        array = above.create_array("x", shape=(4, 6), chunks=(2, 3), dtype="float64", fill_value=float("nan"))
        array[:2] = np.arange(12).reshape(2, 6)
        array.attrs["odd"] = {"big": 2**90, "nan": float("nan")}
    return store


def run(*args):
    command = [mounting.program(), "check", *args]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done


def fix(*args):
    done = run("--fix", "consolidated", *args)
    # The path of the store has the name of the test.
    said = done.stdout.replace("--fix consolidated", "").replace(str(args[-1]), "")
    assert "consolidated" not in said, done.stdout


def described(group):
    members = dict(group.members(max_depth=None))
    return {name: (type(node).__name__, dict(node.attrs), getattr(node, "shape", None)) for name, node in sorted(members.items())}


def check_read(store):
    consolidated = zarr.open_group(store, mode="r", use_consolidated=True)
    assert consolidated.metadata.consolidated_metadata is not None
    plain = zarr.open_group(store, mode="r", use_consolidated=False)
    assert repr(described(consolidated)) == repr(described(plain)) and len(described(plain)) == 4
    assert consolidated.attrs["of"] == "root"
    np.testing.assert_array_equal(consolidated["b/x"][:2], np.arange(12).reshape(2, 6))
    assert np.isnan(consolidated["b/x"].fill_value)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_zarr_python_reads_rebuilt_consolidated_metadata(tmp_path, zarr_format):
    store = make(tmp_path / "s.zarr", zarr_format)
    fix("--yes", store)
    check_read(store)
    again = run("--fix", "consolidated", "--yes", store)
    assert again.stdout.splitlines()[-1] == run(store).stdout.splitlines()[-1]


def test_rebuilt_consolidated_metadata_equal_those_of_zarr_python(tmp_path):
    store = make(tmp_path / "s.zarr", 3)
    fix("--yes", store)
    ours = json.loads((store / "zarr.json").read_text())
    with pytest.warns(UserWarning):
        zarr.consolidate_metadata(store)
    theirs = json.loads((store / "zarr.json").read_text())
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    names = [list(document["consolidated_metadata"]["metadata"]) for document in (ours, theirs)]
    assert names[0] == names[1]


def test_a_mount_and_an_archive_are_not_written(tmp_path, mounted):
    store = make(tmp_path / "s.zarr", 2)
    archive = shutil.make_archive(tmp_path / "s", "zip", store)
    mount = mounted(store, "--cow", tmp_path / "upper")
    for place, why in ((mount.path, "is in a mount of zarrfs"), (archive, "read-only")):
        for how in (["--yes"], ["--cow", tmp_path / "other"])[: 2 if place is mount.path else 1]:
            command = [mounting.program(), "check", "--fix", "consolidated", *how, place]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and why in done.stderr, done
    fix("--cow", tmp_path / "of archive", archive)
