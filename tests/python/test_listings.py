"""What recursive programs meet in the files view: each array once, and of its chunks those that are stored."""

import errno
import json
import os
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
import zarr

import mounting
import needs

HUGE = {
    # A thousand million chunks, and a million times as many.
    "e9": {"shape": (10**9, 1000), "chunks": (1, 1000)},
    "e15": {"shape": (10**9, 10**6), "chunks": (1, 1)},
    "shards": {"shape": (10**9, 10**9), "chunks": (1, 10), "shards": (100, 1000)},
}
# The files that an array of two dimensions has of integers of four bytes.
OF_INTEGERS = (
    "npy raw f.npy nrrd nhdr mha mhd nii fits vti tif ome.tif vrt hdr img csv ndjson nc h5 nc4".split()
)
DOCUMENTS = {"metadata.json", "attributes.json"}
# More than any program should read here: the whole of what is stored is some hundred bytes.
MUCH = 1 << 20


def run(*command, status=0):
    """Runs a program, which has to end with `status`; returns its output."""
    # An end for a program that would never end, not a measure of time.
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (command, done.stderr)
    return done.stdout


@pytest.fixture
def made(tmp_path):
    """Makes a store with huge arrays, of which little or nothing is stored, a small one and one of strings."""
    root = zarr.open_group(tmp_path / "made.zarr", mode="w", zarr_format=3)
    for name, how in HUGE.items():
        for kind in ("none", "some"):
            array = root.create_array(f"{kind}-{name}", dtype="u1", fill_value=7, compressors=None, **how)
            if kind == "some":
                array[5, :3] = 1
                array[10**9 - 1, -1] = 2
    root.create_array("small", data=np.arange(12, dtype="<i4").reshape(3, 4), chunks=(2, 2))
    words = root.create_array("words", shape=(5,), chunks=(2,), dtype="str", fill_value="none")
    words[:3] = ["one", "two", "three"]
    return tmp_path / "made.zarr"


def expected(made):
    """Returns the paths of all files that a program meets below a files view."""
    root = zarr.open_group(made, mode="r")
    found = set(DOCUMENTS)
    for name in root.array_keys():
        files = {"small": {"small.npy"}, "words": {"words.txt"}}.get(name, set())
        if name.startswith("some"):
            folder = made / name / "c"
            keys = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
            files = {f"chunks/{'.'.join(key.parts)}.npy" for key in keys}
            assert files
        found |= {f"{name}/{file}" for file in files | DOCUMENTS}
    return found


def files_below(folder):
    found = set()
    for parent, _, names in os.walk(folder, onerror=lambda error: pytest.fail(str(error))):
        found |= {os.path.relpath(os.path.join(parent, name), folder) for name in names}
    return found


def bytes_read(mount):
    return json.loads((mount.path / ".zarrfs/stats.json").read_text())["read_bytes"]


def check_copy(folder, view, made):
    assert files_below(folder) == expected(made)
    for path in expected(made):
        assert (folder / path).read_bytes() == (view / path).read_bytes(), path


@pytest.fixture
def view(made, mounted):
    mount = mounted(made, "--view", "files")
    yield mount
    assert bytes_read(mount) < 8 * MUCH


def test_find_lists_only_stored_chunks(view, made):
    found = run("find", view.path, "-type", "f", "-printf", "%P\n").splitlines()
    assert sorted(found) == sorted(expected(made))
    # With the sizes of all of them.
    assert run("find", view.path, "-size", "+1M") == ""


def test_du_counts_only_stored_chunks(view):
    for option in ("-sB1", "-sb"):
        assert 0 < int(run("du", option, view.path).split()[0]) < MUCH


def test_cp_copies_only_stored_chunks(view, made, tmp_path):
    run("cp", "-r", view.path, tmp_path / "copy")
    check_copy(tmp_path / "copy", view.path, made)


@pytest.mark.parametrize("option", ["-c", "-cS"])
def test_tar_archives_only_stored_chunks(view, made, tmp_path, option):
    run("tar", option, "-C", view.path, "-f", tmp_path / "made.tar", ".")
    assert (tmp_path / "made.tar").stat().st_size < MUCH
    (tmp_path / "copy").mkdir()
    run("tar", "-x", "-C", tmp_path / "copy", "-f", tmp_path / "made.tar")
    check_copy(tmp_path / "copy", view.path, made)


def test_rsync_copies_only_stored_chunks(view, made, tmp_path):
    needs.require("rsync", shutil.which("rsync") is not None)
    run("rsync", "-aX", f"{view.path}/", tmp_path / "copy")
    check_copy(tmp_path / "copy", view.path, made)
    assert run("rsync", "-aXi", "--checksum", f"{view.path}/", tmp_path / "copy") == ""


def test_grep_reads_only_stored_chunks(view):
    # It reads everything and finds nothing, which is status 1.
    assert run("grep", "-r", "no such words", view.path, status=1) == ""


def test_unlisted_files_open_by_name(view):
    for name, how in HUGE.items():
        size = how["shape"][0] * how["shape"][1]
        assert (view.path / f"some-{name}" / f"some-{name}.raw").stat().st_size == size
    array = view.path / "some-e9"
    with open(array / "some-e9.npy", "rb") as file:
        assert np.lib.format.read_magic(file) == (1, 0)
        assert np.lib.format.read_array_header_1_0(file)[0] == HUGE["e9"]["shape"]
        file.seek(5 * 1000, os.SEEK_CUR)
        assert file.read(5) == bytes([1, 1, 1, 7, 7])
        file.seek(-1, os.SEEK_END)
        assert file.read() == b"\2"
    assert set((array / "chunks/1.0.raw").read_bytes()) == {7}
    assert "1.0.npy" not in os.listdir(array / "chunks")


def test_an_extended_attribute_lists_the_names_that_open(view):
    for name, names in {
        "small": [*(f"small.{end}" for end in OF_INTEGERS), "chunks/"],
        "words": ["words.npy", "words.raw", "words.txt", "words.csv", "words.ndjson", "words.nc", "words.h5", "words.nc4", "chunks/"],
    }.items():
        array = view.path / name
        assert os.getxattr(array, "user.zarrfs.files").decode().splitlines() == names
        assert all((array / name).exists() for name in names)
        # Programs that copy attributes do not meet it.
        with pytest.raises(OSError) as refused:
            os.listxattr(array)
        assert refused.value.errno == errno.EOPNOTSUPP
    of_group = os.getxattr(view.path, "user.zarrfs.files").decode().splitlines()
    assert {"h5", "nc4"} <= {name.rpartition(".")[2] for name in of_group}
    assert all((view.path / name).exists() for name in of_group)
    for other, code in [
        (("small/chunks", "user.zarrfs.files"), errno.ENODATA),
        (("small", "user.zarrfs.nosuch"), errno.ENODATA),
        (("small", "user.x"), errno.EOPNOTSUPP),
    ]:
        with pytest.raises(OSError) as refused:
            os.getxattr(view.path / other[0], other[1])
        assert refused.value.errno == code


def test_the_list_of_names_is_read_only_below_an_upper_folder(made, mounted, tmp_path):
    mount = mounted(made, "--cow", tmp_path / "upper")
    array = mount.files / "small"
    assert b"small.raw\n" in os.getxattr(array, "user.zarrfs.files")
    for change in (lambda: os.setxattr(array, "user.zarrfs.files", b"x"), lambda: os.removexattr(array, "user.zarrfs.files")):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("options", [["--list", "raw,chunks"], ["-o", "list=raw:chunks"], ["-o", r"list=raw\,chunks"]])
def test_the_option_list_chooses_the_listed_forms(made, mounted, options):
    mount = mounted(made, *options)
    assert set(os.listdir(mount.files / "small")) == DOCUMENTS | {"small.npy", "small.raw", "chunks"}
    assert set(os.listdir(mount.files / "words")) == DOCUMENTS | {"words.txt", "words.raw", "chunks"}
    names = {f"{i}.{end}" for i in range(2) for end in ("txt", "raw")}
    assert set(os.listdir(mount.files / "words/chunks")) == names
    options = json.loads((mount.path / ".zarrfs/mount.json").read_text())["options"]
    assert options["list"] == "raw,chunks"


def test_an_unknown_form_is_refused(made, tmp_path):
    names = "npy, raw, txt, f.npy, nrrd, nhdr, mha, mhd, nii, fits, mrc, vti, tif, ome.tif, vrt, hdr, img, csv, ndjson, nc, h5, nc4"
    forms = f"row: unknown format; choose from {names}, chunks and all"
    for options, said in [
        (["--list", "npy,row"], f"zarrfs: --list {forms}; see 'zarrfs mount --help'\n"),
        (["-o", "list=npy:row"], f"zarrfs: -o list: {forms}\n"),
    ]:
        done = mounting.zarrfs("mount", *options, made, tmp_path / "none", check=False)
        assert (done.returncode, done.stderr) == (2, said)


def test_a_file_of_unknown_length_is_not_empty(made, mounted, tmp_path):
    (made / "words/c/0").write_bytes(b"no chunk")
    view = mounted(made, "--view", "files").path
    assert "words.txt" in os.listdir(view / "words")
    with pytest.raises(OSError) as refused:
        os.stat(view / "words/words.txt")
    assert refused.value.errno == errno.EIO
    for command in (["tar", "-cf", tmp_path / "made.tar", "words"], ["cp", "-r", "words", tmp_path / "copy"]):
        done = subprocess.run(list(map(str, command)), cwd=view, capture_output=True, text=True, timeout=300)
        assert done.returncode != 0 and "words.txt" in done.stderr
    with tarfile.open(tmp_path / "made.tar") as archive:
        assert "words/words.txt" not in archive.getnames()
