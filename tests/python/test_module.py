"""The Python module `zarrfs`: mounts in one line, errors in the program's words, and nothing left behind.

What is done to an interpreter as a whole (signals, forks, ends) is done to one of its own, which runs
`interpreter.py`; each test has a folder for temporary files, in which nothing may stay.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mounting
import numpy
import pytest
import zarr
from mounting import wait_until

import zarrfs

MOUNTS = 50


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Has everything made in a folder, and checks that no mount, folder or process stays."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(mounting.ROOT / "python"))
    monkeypatch.setenv("ZARRFS", mounting.program())
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    left = wait_until(lambda: not mounts_in(folder) and not list(folder.iterdir()))
    found = mounts_in(folder), list(folder.iterdir())
    for mounted in found[0]:
        mounting.lazy_unmount(mounted)
    assert left, found
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)


def mounts_in(folder):
    return [point for point, _ in mounting.mounts() if point.startswith(f"{folder}/")]


def processes_of(folder):
    """Returns the command lines of programs that have the folder among their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"zarrfs\0mount\0" in line and os.fsencode(folder) in line:
            found.append(line)
    return found


def test_a_store_is_mounted_in_one_line(sample, temporary):
    with zarrfs.mount(sample, memory="64M", list=["raw", "chunks"], timeout=5.5) as mounted:
        assert mounted.path.parent == temporary and mounted.is_mounted()
        assert os.fspath(mounted) == str(mounted) == str(mounted.path)
        assert mounted.store == mounted.path and (mounted.store / "tas/zarr.json").is_file()
        assert mounted.files == mounted.path / ".zarrfs/files"
        assert {"tas.raw", "chunks"} <= set(os.listdir(mounted.files / "tas"))
        for name in ("tas", "survey/volume"):
            array = mounted.open(name)
            assert type(array) is numpy.memmap
            numpy.testing.assert_array_equal(array, zarr.open_array(sample, path=name, mode="r")[:])
        [found] = [found for found in zarrfs.mounts() if found.directory == mounted.path]
        assert (found.store, found.view, found.state) == (str(sample), "store", "read-only")
        assert found.changes is None
    assert not mounted.is_mounted() and not mounted.path.exists()
    mounted.unmount()


def test_a_given_mountpoint_is_used_and_kept(sample, tmp_path):
    place = tmp_path / "a place, \\1"
    place.mkdir()
    with zarrfs.mount(sample, place, view="files") as mounted:
        assert (mounted.path, mounted.files) == (place, place)
        assert (mounted.store / "tas/c").is_dir()
        assert mounted.open("tas").shape == (12, 36, 72)
    assert list(place.iterdir()) == []


def test_a_root_array_is_opened_without_a_name(sample):
    with zarrfs.mount(sample / "tas") as mounted:
        assert mounted.open("").shape == mounted.open("/").shape == (12, 36, 72)


def test_an_array_outlives_its_mount(sample):
    with zarrfs.mount(sample) as mounted:
        array = mounted.open("tas")
    assert not mounted.path.exists()
    expected = zarr.open_array(sample, path="tas", mode="r")[:]
    # Longer than a mount that a signal ends is kept for its users.
    wait_until(lambda: False, 3.2)
    numpy.testing.assert_array_equal(array, expected)


def test_errors_have_the_messages_of_the_program(sample, tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    cases = [
        (lambda: zarrfs.mount("none.zarr"), f"{Path('none.zarr').resolve()}: No such file or directory"),
        (lambda: zarrfs.mount(sample, place / "none"), f"{place}/none: No such file or directory"),
        (lambda: zarrfs.mount(sample, sample / "tas"), f"{sample}/tas: the mountpoint must not be inside the store"),
        (lambda: zarrfs.mount(sample, memory=3), "3: too little memory: use at least 1M"),
        (lambda: zarrfs.mount(sample, umask=0o7000), "--umask 7000: not octal permissions"),
        (lambda: zarrfs.mount(sample, timeout=-1.0), "-1000ms: not a duration"),
        (lambda: zarrfs.mount("--help"), f"{Path('--help').resolve()}: No such file"),
    ]
    for call, sentence in cases:
        with pytest.raises(zarrfs.Error) as error:
            call()
        assert sentence in str(error.value)
        assert not str(error.value).startswith("zarrfs")
    with pytest.raises(TypeError, match="unexpected keyword argument 'foreground'"):
        zarrfs.mount(sample, foreground=True)
    with zarrfs.mount(sample) as mounted, pytest.raises(zarrfs.Error, match="mounted without --cow"):
        mounted.commit()
    with zarrfs.mount(sample) as mounted, pytest.raises(FileNotFoundError):
        mounted.open("none")
    monkeypatch.setenv("ZARRFS", str(place / "none"))
    with pytest.raises(FileNotFoundError, match="place/none"):
        zarrfs.mount(sample)


def test_changes_are_committed_or_in_conflict(sample, tmp_path):
    upper = tmp_path / "upper"
    with zarrfs.mount(sample, cow=upper) as mounted:
        mounted.open("tas", "r+")[0, 0, :3] = [1, 2, 3]
        # A page of memory has elements of two chunks.
        assert mounted.commit(dry_run=True)["put"] == 2
        assert mounted.commit()["put"] == 2
        assert mounted.commit()["put"] == 0
        mounted.open("tas", "r+")[0, 0, 0] = 4
        zarr.open_array(sample, path="tas")[0, 0, 0] = 5
        with pytest.raises(zarrfs.CommitConflict, match="nothing was committed; tas/c/0/0/0: ") as conflict:
            mounted.commit()
        assert [key for key, _ in conflict.value.keys] == ["tas/c/0/0/0"]
        assert mounted.commit(force=True)["put"] == 2
    tas = zarr.open_array(sample, path="tas", mode="r")
    assert tas[0, 0, :3].tolist() == [4, 2, 3]


def test_written_elements_are_in_the_store_after_the_unmount(sample, tmp_path):
    with zarrfs.mount(sample, cow=tmp_path / "upper", write_through=True) as mounted:
        mounted.open("tas", "r+")[0, 0, 0] = 7
    assert zarr.open_array(sample, path="tas", mode="r")[0, 0, 0] == 7


def test_a_warning_names_open_files_at_the_unmount(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(zarrfs._mount, "WRITTEN_LIMIT", 0.5)
    upper = tmp_path / "upper"
    mounted = zarrfs.mount(sample, cow=upper)
    array = mounted.open("tas", mode="r+")
    note = open(mounted.store / "note.txt", "w")
    document = open(mounted.store / "zarr.json")
    with pytest.warns(RuntimeWarning, match=f"{mounted.path} is unmounted, and files of it are still open"):
        mounted.unmount()
    with pytest.raises(OSError):
        # Nothing of the connection is left either.
        mounted._mounted._lifeline._ours.getpeername()
    # All that the warning says of these files.
    assert document.read() == (sample / "zarr.json").read_text()
    note.write("late")
    note.close()
    array[0, 0, 0] = 1
    array.flush()
    with pytest.raises(zarrfs.Error, match="is in use by another mount"):
        zarrfs.mount(sample, cow=upper)
    document.close()
    del array
    assert wait_until(lambda: not processes_of(upper))
    with zarrfs.mount(sample, cow=upper) as again:
        assert again.open("tas")[0, 0, 0] == 1
        assert (again.store / "note.txt").read_text() == "late"


def test_the_warning_of_open_files_points_to_the_line_of_the_caller(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(zarrfs._mount, "WRITTEN_LIMIT", 0.2)

    def leave_with(mounted):
        with mounted:
            return open(mounted.store / "zarr.json")

    def leave_stack(mounted):
        with contextlib.ExitStack() as stack:
            stack.enter_context(mounted)
            return open(mounted.store / "zarr.json")

    def leave_by_hand(mounted):
        document = open(mounted.store / "zarr.json")
        mounted.unmount()
        return document

    for leave in (leave_with, leave_stack, leave_by_hand):
        mounted = zarrfs.mount(sample, cow=tmp_path / leave.__name__)
        with pytest.warns(RuntimeWarning, match="still open") as told:
            document = leave(mounted)
        begin = leave.__code__.co_firstlineno
        assert told[0].filename == __file__ and begin < told[0].lineno < begin + 5, leave
        document.close()


def test_only_a_commit_has_no_time_limit(sample, tmp_path, monkeypatch):
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n[ "$1" = mount ] || sleep 1\nexec {mounting.program()} "$@"\n')
    slow.chmod(0o755)
    with zarrfs.mount(sample, cow=tmp_path / "upper") as mounted, monkeypatch.context() as changed:
        changed.setattr(zarrfs._program.run, "__defaults__", (None, 0.2))
        changed.setenv("ZARRFS", str(slow))
        (mounted.store / "note.txt").write_text("new")
        assert mounted.commit()["put"] == 1
        with pytest.raises(zarrfs.Error, match="^zarrfs list did not end within 0.2 s$"):
            zarrfs.mounts()


def test_options_of_the_module_are_those_of_the_command():
    text = mounting.zarrfs("mount", "--help").stdout
    words = [line.split("--")[1].split()[0] for line in text.splitlines() if re.match(r" {2,6}-", line) and "--" in line]
    known = {word.split("=")[0].rstrip(".").replace("-", "_") for word in words} - {"help", "version"}
    assert len(known) > 25
    assert set(zarrfs.MountOptions.__annotations__) == known - {"foreground"} | {"options"}


def test_an_unknown_option_is_a_type_error(sample):
    for name, hint in (("allow_othr", "did you mean 'allow_other'?"), ("until_eof", ""), ("qqqqqq", "'qqqqqq'")):
        with pytest.raises(TypeError, match="unexpected keyword argument") as caught:
            zarrfs.mount(sample, **{name: 1})
        assert hint in str(caught.value)


def test_options_are_written_as_the_command_reads_them(sample, tmp_path):
    options = {
        "storage_option": {"a": "b,c", "d": "e"},
        "options": ["fsname=named", "noatime"],
        "verbose": 2,
        "umask": 0o027,
        "timeout": 1.5,
        "lossy": False,
        "cow": None,
        "log": tmp_path / "log",
    }
    with zarrfs.mount(sample, **options) as mounted:
        text = (mounted.path / ".zarrfs/mount.json").read_text()
        assert '"umask": "027"' in text and '"timeout": "1500ms"' in text
        assert (mounted.path / "zarr.json").stat().st_mode & 0o777 == 0o440
        assert "DEBUG" in (tmp_path / "log").read_text()
        sources = [line.split(" - ")[1].split()[1] for line in open("/proc/self/mountinfo") if str(mounted) in line]
        assert sources == ["named"]


def test_a_mount_in_another_mount_is_a_store_of_its_own(sample):
    with zarrfs.mount(sample) as outer, zarrfs.mount(outer.path / "survey", view="files") as inner:
        volume = inner.open("volume")
        with zarrfs.mount(sample) as third:
            numpy.testing.assert_array_equal(volume, third.open("survey/volume"))
        outer.unmount()
        # The inner mount is a store of its own, and its store stays open.
        assert inner.is_mounted() and not outer.is_mounted()
        del volume


def test_many_mounts_from_many_threads(sample, temporary):
    expected = zarr.open_array(sample, path="tas", mode="r")[3]
    together = threading.Barrier(MOUNTS)

    def mount_and_read(number):
        with zarrfs.mount(sample, memory="8M") as mounted:
            together.wait(60)
            assert len(mounts_in(temporary)) == MOUNTS
            together.wait(60)
            numpy.testing.assert_array_equal(mounted.open("tas")[3], expected)
            return mounted.path

    with ThreadPoolExecutor(MOUNTS) as threads:
        assert len(set(threads.map(mount_and_read, range(MOUNTS)))) == MOUNTS


def test_the_module_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "zarrfs", "--version"], capture_output=True, text=True)
    assert done.stdout == mounting.zarrfs("--version").stdout
    done = subprocess.run([sys.executable, "-m", "zarrfs", "umount", "/"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("zarrfs: /: not a zarrfs mount")


class Interpreter:
    """A Python that runs `interpreter.py` with a way to mount and to end, and says each step that it has done."""

    def __init__(self, store, state):
        script = Path(__file__).with_name("interpreter.py")
        self.process = subprocess.Popen(
            [sys.executable, script, str(store), state],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A caller in the background ignores SIGINT, which its children inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def says(self, step):
        """Waits until it says a step; fails with its traceback if it ends before."""
        line = self.process.stdout.readline().split()
        if line[:1] != [step]:
            self.process.kill()
            raise AssertionError(f"{line} for {step}: {self.process.stderr.read()}")
        return line[1:]

    def ends(self, status, *, by=None):
        """Sends a signal, or none, and waits for its end with a status."""
        if by is not None:
            self.process.send_signal(by)
        _, words = self.process.communicate(timeout=60)
        assert self.process.returncode == status, words
        return words


SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interpreter_is_killed_while_it_has_a_mount(sample, temporary, number):
    for state in ("mounted", "reading", "forgotten"):
        interpreter = Interpreter(sample, state)
        interpreter.says("mounted")
        assert len(mounts_in(temporary)) == 1
        interpreter.ends(-number, by=number)
        assert wait_until(lambda: not mounts_in(temporary)), state


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interpreter_is_killed_while_a_store_does_not_answer(tmp_path, temporary, number):
    with socket.create_server(("127.0.0.1", 0)) as server:
        interpreter = Interpreter("http://127.0.0.1:{}/x.zarr".format(server.getsockname()[1]), "mounted")
        # It has asked.
        asked, _ = server.accept()
        interpreter.ends(-number, by=number)
        assert wait_until(lambda: not list(temporary.iterdir()))
        asked.close()


# Invariant of `a_mount_ends_with_the_last_writer_of_its_input`.
def test_an_interpreter_is_killed_at_any_moment(sample, temporary):
    """An interpreter takes some hundred milliseconds to start, mount and unmount."""
    for step in range(16):
        interpreter = Interpreter(sample, "again")
        interpreter.says("begins")
        wait_until(lambda: False, step * 0.012)
        interpreter.ends(-signal.SIGKILL, by=signal.SIGKILL)
        assert wait_until(lambda: not mounts_in(temporary)), step
        # A folder that was made and of which no daemon knows yet is all that may stay, and what tempfile tries.
        wait_until(lambda: not list(temporary.iterdir()), 1)
        for left in temporary.iterdir():
            left.rmdir() if left.is_dir() else left.unlink()


@pytest.mark.parametrize("state, status", [("ends", 0), ("exits", 3), ("raises", 1), ("leaves", 4), ("garbage", 0)])
def test_an_interpreter_ends_by_itself(sample, state, status):
    interpreter = Interpreter(sample, state)
    interpreter.says("mounted")
    interpreter.ends(status)


def test_a_fork_uses_a_mount_and_leaves_it_alone(sample, temporary):
    interpreter = Interpreter(sample, "forks")
    interpreter.says("mounted")
    interpreter.says("child-ended")
    interpreter.says("still-mounted")
    interpreter.ends(0)


def test_a_fork_does_not_keep_a_mount(sample, temporary):
    interpreter = Interpreter(sample, "forks-on")
    interpreter.says("mounted")
    [child] = interpreter.says("child")
    interpreter.process.kill()
    assert wait_until(lambda: not mounts_in(temporary))
    os.kill(int(child), signal.SIGKILL)
    interpreter.ends(-signal.SIGKILL)


def test_the_mount_of_a_killed_daemon_is_removed(sample, temporary):
    with zarrfs.mount(sample) as mounted:
        text = (mounted.path / ".zarrfs/mount.json").read_text()
        number = int(text.split('"pid": ')[1].split(",")[0].split()[0])
        os.kill(number, signal.SIGKILL)
        assert wait_until(lambda: not mounted.is_mounted())
        assert mounts_in(temporary)
