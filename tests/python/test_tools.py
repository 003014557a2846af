"""What people run on a folder: ls, find, du, grep, cp, tar, rsync. None of them sees the control directory."""

import filecmp
import shutil
import subprocess

import pytest

import layout
import needs


def run(*command, **more):
    """Runs a program that has to succeed without a word of complaint; returns its output."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=120, **more
    )
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


@pytest.fixture(params=["store", "files"])
def view(request, sample, mounted):
    return mounted(sample, "--view", request.param).path


def assert_same_tree(copy, original):
    assert layout.walk(copy) == layout.walk(original)
    for name in layout.walk(original):
        if (original / name).is_file():
            assert filecmp.cmp(copy / name, original / name, shallow=False), name


def test_cp(view, tmp_path):
    run("cp", "-r", view, tmp_path / "copy")
    assert_same_tree(tmp_path / "copy", view)


def test_cp_with_attributes(view, tmp_path):
    run("cp", "-a", view, tmp_path / "copy")
    assert_same_tree(tmp_path / "copy", view)
    assert (tmp_path / "copy" / "zarr.json").stat().st_mtime == (
        view / "zarr.json"
    ).stat().st_mtime
    run("chmod", "-R", "u+w", tmp_path / "copy")


def test_tar(view, tmp_path):
    run("tar", "-cf", tmp_path / "all.tar", "-C", view, ".")
    (tmp_path / "copy").mkdir()
    run("tar", "-xf", tmp_path / "all.tar", "-C", tmp_path / "copy", "--no-same-owner")
    run("chmod", "-R", "u+w", tmp_path / "copy")
    assert_same_tree(tmp_path / "copy", view)


def test_rsync(view, tmp_path):
    needs.require("rsync", shutil.which("rsync") is not None)
    run("rsync", "-r", "--times", f"{view}/", tmp_path / "copy")
    assert_same_tree(tmp_path / "copy", view)
    again = run("rsync", "-r", "--times", "-i", f"{view}/", tmp_path / "copy")
    assert again == ""


def test_find(view):
    found = run("find", view, "-mindepth", "1", "-printf", "%P\\n").splitlines()
    assert sorted(found) == layout.walk(view)
    assert not any(".zarrfs" in name for name in found)
    # Old versions of find skip folders whose number of links promises no subfolders.
    assert run("find", view, "-type", "f", "-size", "0") == ""
    assert run("find", view, "-type", "f", "-name", "zarr.json").count("\n") == 9


def test_ls(view):
    assert ".zarrfs" not in run("ls", "-a", view).split()
    assert "zarr.json" in run("ls", "-lR", view)


def test_grep(view):
    found = run("grep", "-rl", "near-surface air temperature", "-i", view)
    assert f"{view}/tas/zarr.json" in found.splitlines()


def test_du(view):
    used = int(run("du", "-sB1", view).split()[0])
    apparent = int(run("du", "-sb", view).split()[0])
    assert used > 0
    lengths = [(view / name).stat() for name in layout.walk(view)]
    assert apparent >= sum(s.st_size for s in lengths if s.st_mode & 0o100000)
    assert all(s.st_blocks > 0 for s in lengths if s.st_size and s.st_mode & 0o100000)


def test_sha256sum_of_decoded_files(sample, mounted):
    files = mounted(sample).files
    raw = layout.decoded(files, sample, "tas", "raw")
    npy = layout.decoded(files, sample, "tas", "npy")
    tail = run("sh", "-c", f"tail -c {raw.stat().st_size} '{npy}' | sha256sum")
    assert tail.split()[0] == run("sha256sum", raw).split()[0]


def test_dd_from_the_middle(sample, mounted):
    raw = layout.decoded(mounted(sample).files, sample, "survey/volume", "raw")
    command = ["dd", f"if={raw}", "bs=777", "skip=100", "count=13", "status=none"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == raw.read_bytes()[77700 : 77700 + 13 * 777]
