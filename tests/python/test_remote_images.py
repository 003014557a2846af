"""Images of OME-Zarr, and consolidated metadata that do not read, on a server that cannot list."""

import json
import os
import subprocess

import numpy as np
import ome_zarr.format
import pytest
import zarr
from ome_zarr.writer import write_image, write_labels, write_plate_metadata, write_well_metadata

import mounting
import places
from servers.keys_only import KeysOnly

FORMATS = {2: ome_zarr.format.FormatV04, 3: ome_zarr.format.FormatV05}
PLANE = np.arange(64 * 64, dtype="u2").reshape(64, 64)


@pytest.fixture
def served(tmp_path):
    for name in ("server", "data"):
        (tmp_path / name).mkdir()
    with KeysOnly(tmp_path / "server", tmp_path / "data") as server:
        yield f"{server.url}/made"


def put_image(group, version):
    write_image(PLANE, group, axes="yx", fmt=FORMATS[version]())
    write_labels((PLANE % 7).astype("u1"), group, name="cells", axes="yx", fmt=FORMATS[version]())


def tree(url):
    """Returns the paths of all nodes."""
    listed = json.loads(mounting.zarrfs("tree", "--json", url).stdout)
    return {node["path"] for node in listed["nodes"]}


def nodes_of(folder):
    """Returns the paths of all nodes that are stored in a folder."""
    documents = [*folder.rglob("zarr.json"), *folder.rglob(".zgroup"), *folder.rglob(".zarray")]
    return {str(path.parent.relative_to(folder)).removeprefix(".") for path in documents}


@pytest.mark.parametrize("version", FORMATS)
def test_an_image_of_ome_zarr_is_listed(tmp_path, served, version):
    root = zarr.open_group(tmp_path / "data/made", mode="w", zarr_format=version)
    put_image(root, version)
    expected = nodes_of(tmp_path / "data/made")
    assert len(expected) > 5 and any("labels/cells/" in path for path in expected)
    assert tree(served) == expected
    with mounting.Mount(served, environment=places.environment({})) as mount:
        for view in (mount.path, mount.files):
            names = set(os.listdir(view))
            assert {path for path in expected if path and "/" not in path} <= names
            assert "cells" in os.listdir(view / "labels")


@pytest.mark.parametrize("version", FORMATS)
def test_a_plate_of_ome_zarr_is_listed(tmp_path, served, version):
    root = zarr.open_group(tmp_path / "data/made", mode="w", zarr_format=version)
    write_plate_metadata(root, ["A", "B"], ["1", "2"], ["A/1", "B/2"], fmt=FORMATS[version]())
    for row, column in ("A1", "B2"):
        well = root.require_group(row).require_group(column)
        write_well_metadata(well, ["0"], fmt=FORMATS[version]())
        put_image(well.require_group("0"), version)
    expected = nodes_of(tmp_path / "data/made")
    assert tree(served) == expected
    with mounting.Mount(served, environment=places.environment({})) as mount:
        assert {"A", "B"} <= set(os.listdir(mount.path))
        assert "2" in os.listdir(mount.files / "B")


def test_a_new_node_beside_named_children_is_listed(tmp_path, served):
    root = zarr.open_group(tmp_path / "data/made", mode="w", zarr_format=3)
    put_image(root, 3)
    upper = tmp_path / "upper"
    upper.mkdir()
    with mounting.Mount(served, "--cow", upper, environment=places.environment({})) as mount:
        before = set(os.listdir(mount.path))
        zarr.open_group(mount.path, mode="r+").create_group("mine")
        assert set(os.listdir(mount.path)) == before | {"mine"}


NAMED = "named in attributes; other groups and arrays are unknown"


def put_image_and_other(folder, other):
    """Writes an image, and an array that no attribute names."""
    root = zarr.open_group(folder, mode="w", zarr_format=3)
    put_image(root, 3)
    root.create_array("other", data=np.arange(4) + other)
    return root


def test_commands_that_need_all_nodes_refuse_named_ones(tmp_path, served):
    for number, name in enumerate(["made", "second"]):
        put_image_and_other(tmp_path / "data" / name, number)
    second = served.removesuffix("made") + "second"
    here, there = tmp_path / "data/made", tmp_path / "data/second"
    assert mounting.zarrfs("diff", here, there, check=False).returncode == 1
    for one, two in [(served, second), (served, there), (here, second)]:
        for options in [[], ["--values"]]:
            done = mounting.zarrfs("diff", *options, one, two, check=False)
            assert done.returncode == 2 and "the store does not list names" in done.stderr
    for ending in ["h5", "nc4", "csv"]:
        file = tmp_path / f"out.{ending}"
        done = mounting.zarrfs("cp", served, file, check=False)
        assert done.returncode == 2 and "the store does not list names" in done.stderr
        assert not file.exists()
    with mounting.Mount(served, "--list", "npy,h5,nc4,csv", environment=places.environment({})) as mount:
        assert np.array_equal(np.load(mount.files / "other/other.npy"), np.arange(4))
        for group, name in [(mount.files, "made"), (mount.files / "labels", "labels")]:
            for ending in ["h5", "nc4", "csv"]:
                assert f"{name}.{ending}" not in os.listdir(group)
                with pytest.raises(OSError):
                    (group / f"{name}.{ending}").read_bytes()


@pytest.mark.parametrize("command", ["tree", "ls", "info"])
def test_commands_say_that_only_nodes_named_by_attributes_are_shown(tmp_path, served, command):
    put_image_and_other(tmp_path / "data/made", 0)
    for place in ["", "/labels"]:
        done = mounting.zarrfs(command, served + place)
        assert (done.stdout + done.stderr).count(NAMED) == 1
        whole = mounting.zarrfs(command, f"{tmp_path}/data/made{place}")
        assert NAMED not in whole.stdout + whole.stderr
    for place, is_partial in [(served, True), (tmp_path / "data/made", None)]:
        told = json.loads(mounting.zarrfs(command, "--json", place).stdout)
        if command == "tree":
            assert told["nodes"][0].get("is_partial") == is_partial
        if command == "info":
            assert told["children"].get("is_partial") == is_partial


def cut_off(folder, version):
    """Cuts the document that has the consolidated metadata; returns its name."""
    root = zarr.open_group(folder, mode="w", zarr_format=version)
    root.create_array("a", data=np.arange(4))
    zarr.consolidate_metadata(folder, zarr_format=version)
    name = ".zmetadata" if version == 2 else "zarr.json"
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-100])
    return name


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("version", [2, 3])
def test_truncated_consolidated_metadata_are_named_by_each_command(tmp_path, served, version):
    name = cut_off(tmp_path / "data/made", version)
    for command, status in [("tree", 2), ("ls", 2), ("info", 0), ("check", 1)]:
        done = mounting.zarrfs(command, served, check=False)
        assert done.returncode == status
        told = done.stdout + done.stderr
        assert f"{name}: " in told and ("not JSON" in told or "not valid JSON" in told), command
    for command, status in [("tree", 0), ("ls", 0), ("info", 0), ("check", 1)]:
        arguments = ["--consolidated"] if command != "check" else []
        done = mounting.zarrfs(command, *arguments, tmp_path / "data/made", check=False)
        assert done.returncode == status
        if version == 2 or command != "ls":
            told = done.stdout + done.stderr
            assert "not JSON" in told or "not valid JSON" in told, command
    log = tmp_path / "log"
    with mounting.Mount(served, "--log", log, environment=places.environment({})) as mount:
        os.listdir(mount.path)
        assert f"{name}: not JSON" in log.read_text() + subprocess.getoutput(f"cat {mount.path}/.zarrfs/errors")
