"""What other programs do with a mounted folder beyond reading it: rsync, cp -a, du. None sees the control directory."""

import errno
import os
import shutil
import subprocess

import pytest

import layout
import needs


def run(*command):
    """Runs a program that has to succeed without a word of complaint; returns its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


@pytest.fixture(params=["store", "files"])
def view(request, sample, mounted):
    return mounted(sample, "--view", request.param).path


def test_a_second_rsync_copies_nothing(view, tmp_path):
    needs.require("rsync", shutil.which("rsync") is not None)
    run("rsync", "-r", "--times", f"{view}/", tmp_path / "copy")
    assert layout.walk(tmp_path / "copy") == layout.walk(view)
    # By contents, then by times and sizes.
    for option in ("--checksum", "--times"):
        assert run("rsync", "-r", "--times", option, "-i", f"{view}/", tmp_path / "copy") == ""


def test_cp_keeps_times(view, tmp_path):
    run("cp", "-a", view, tmp_path / "copy")
    name = "metadata.json" if (view / "metadata.json").exists() else "zarr.json"
    assert (tmp_path / "copy" / name).stat().st_mtime == (view / name).stat().st_mtime
    run("chmod", "-R", "u+w", tmp_path / "copy")


def test_du_counts_blocks(view):
    used = int(run("du", "-sB1", view).split()[0])
    apparent = int(run("du", "-sb", view).split()[0])
    assert used > 0
    lengths = [(view / name).stat() for name in layout.walk(view)]
    assert apparent >= sum(s.st_size for s in lengths if s.st_mode & 0o100000)
    assert all(s.st_blocks > 0 for s in lengths if s.st_size and s.st_mode & 0o100000)


def contents(folder):
    """Returns the bytes of all files below a folder, by their paths."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_programs_that_skip_holes_copy_all_bytes(view, tmp_path):
    found = contents(view)
    for name, content in found.items():
        with open(view / name, "rb") as file:
            if content:
                assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 0, name
                assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == len(content), name
            with pytest.raises(OSError) as error:
                os.lseek(file.fileno(), len(content), os.SEEK_DATA)
            assert error.value.errno == errno.ENXIO, name
    run("cp", "-r", "--sparse=auto", view, tmp_path / "copy")
    assert contents(tmp_path / "copy") == found
    (tmp_path / "unpacked").mkdir()
    run("tar", "-C", view, "-S", "-cf", tmp_path / "packed.tar", ".")
    run("tar", "-C", tmp_path / "unpacked", "-xf", tmp_path / "packed.tar")
    assert contents(tmp_path / "unpacked") == found
    run("chmod", "-R", "u+w", tmp_path / "copy", tmp_path / "unpacked")
