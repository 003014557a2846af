"""Programs save `attributes.json` of the files view, each in its own way: in place, by a file beside it, or made anew."""

import contextlib
import errno
import json
import os
import pty
import select
import shutil
import subprocess
import time

import pytest
import zarr

import needs
from mounting import wait_until
from mounting import zarrfs

OLD = {"units": "K", "scale": 1.5}
NEW = {"units": "m", "scale": 1.5}
MODES = ["cow", "write-through"]


def found(*names):
    """Returns the path of a program, by the first of its names."""
    path = next(filter(None, map(shutil.which, names)), None)
    needs.require(names[0], path is not None, source=" (scripts/setup tools installs it)")
    return path


def run(*command, cwd=None, check=True):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


@contextlib.contextmanager
def saved(tmp_path):
    """A file of the new attributes on another file system than the mount."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "attributes.json").write_text(json.dumps(NEW))
    yield folder


def vim(*settings):
    def save(folder, _):
        commands = [f"set {setting}" for setting in settings] + ["%s/K/m/", "wq"]
        words = [word for command in commands for word in ("-c", command)]
        run(found("vim", "vim.tiny"), "-N", "-u", "NONE", "-es", *words, "attributes.json", cwd=folder)

    return save


def nano(folder, _):
    """Types: replace K by m, all of them, write, leave."""
    program = found("nano")
    process, screen = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(program, ["nano", "--ignorercfiles", "attributes.json"], {"TERM": "xterm"})
    said = b""
    for keys in ["", "\x1c", "K\r", "m\r", "a", "\x0f", "\r", "\x18"]:
        os.write(screen, keys.encode())
        end = time.monotonic() + 10
        while select.select([screen], [], [], 0.3)[0] and time.monotonic() < end:
            try:
                said += os.read(screen, 1 << 16)
            except OSError:
                # The program has ended.
                break
    assert wait_until(lambda: os.waitpid(process, os.WNOHANG)[0] == process), said
    os.close(screen)


def shell(script, *programs):
    def save(folder, _):
        for program in programs:
            found(program)
        run("sh", "-ec", script, cwd=folder)

    return save


def copied(*command):
    """A program that brings the new file from another file system: SOURCE and FOLDER stand for the folders."""

    def save(folder, tmp_path):
        with saved(tmp_path) as source:
            places = {"SOURCE": str(source), "FOLDER": str(folder)}
            words = [word.replace("SOURCE", places["SOURCE"]).replace("FOLDER", places["FOLDER"]) for word in command]
            run(found(words[0]), *words[1:])

    return save


def tar(*options):
    def save(folder, tmp_path):
        with saved(tmp_path) as source:
            run(found("tar"), "-C", source, "-cf", tmp_path / "x.tar", "attributes.json")
            run("tar", "-C", folder, *options, "-xf", tmp_path / "x.tar")

    return save


def git(folder, tmp_path):
    with saved(tmp_path) as source:
        base = [found("git"), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"]
        run(*base, "init", "-q", source)
        run(*base, "-C", source, "add", "attributes.json")
        run(*base, "-C", source, "commit", "-q", "-m", "new")
        tree = [f"--git-dir={source}/.git", f"--work-tree={folder}"]
        run(*base, *tree, "checkout", "-f", "HEAD", "--", "attributes.json")


def python_in_place(folder, _):
    attributes = json.loads((folder / "attributes.json").read_text())
    (folder / "attributes.json").write_text(json.dumps({**attributes, "units": "m"}))


def python_beside(folder, _):
    text = (folder / "attributes.json").read_text()
    (folder / "any.name").write_text(text.replace("K", "m"))
    os.replace(folder / "any.name", folder / "attributes.json")


def python_linked(folder, _):
    """Keeps a second name, as some editors do for a backup, and makes the file anew under a name that is free."""
    text = (folder / "attributes.json").read_text()
    os.link(folder / "attributes.json", folder / "attributes.json~")
    os.unlink(folder / "attributes.json")
    (folder / "new").write_text(text.replace("K", "m"))
    os.link(folder / "new", folder / "attributes.json")
    assert json.loads((folder / "attributes.json~").read_text()) == OLD
    os.unlink(folder / "attributes.json~")
    os.unlink(folder / "new")


PROGRAMS = {
    "python in place": python_in_place,
    "python beside": python_beside,
    "python linked": python_linked,
    "vim, a copy": vim("backupcopy=yes"),
    "vim, a rename": vim("backupcopy=no"),
    "vim, either": vim("backupcopy=auto"),
    "vim with fsync": vim("fsync", "backupcopy=no"),
    "nano": nano,
    "sed": shell("sed -i s/K/m/ attributes.json", "sed"),
    "sed with a backup": shell("sed -i.bak s/K/m/ attributes.json; rm attributes.json.bak", "sed"),
    "perl": shell("perl -i -pe s/K/m/ attributes.json", "perl"),
    "perl with a backup": shell("perl -i.bak -pe s/K/m/ attributes.json; rm attributes.json.bak", "perl"),
    "jq": shell("jq '.units = \"m\"' attributes.json > new; mv new attributes.json", "jq"),
    "jq into the file": shell("text=$(jq '.units = \"m\"' attributes.json); echo \"$text\" > attributes.json", "jq"),
    "install": copied("install", "-m", "600", "SOURCE/attributes.json", "FOLDER/attributes.json"),
    "install with a backup": copied("sh", "-ec", "install -b SOURCE/attributes.json FOLDER; rm FOLDER/attributes.json~"),
    "mv": copied("mv", "SOURCE/attributes.json", "FOLDER/attributes.json"),
    "mv with a backup": copied("sh", "-ec", "mv -b SOURCE/attributes.json FOLDER; rm FOLDER/attributes.json~"),
    "cp": copied("cp", "SOURCE/attributes.json", "FOLDER/attributes.json"),
    "cp -a": copied("cp", "-a", "SOURCE/attributes.json", "FOLDER/attributes.json"),
    "cp anew": copied("cp", "--remove-destination", "SOURCE/attributes.json", "FOLDER/attributes.json"),
    "dd": copied("sh", "-ec", "dd status=none conv=fsync if=SOURCE/attributes.json of=FOLDER/attributes.json"),
    "rsync": copied("rsync", "-a", "SOURCE/", "FOLDER/"),
    "rsync in place": copied("rsync", "--inplace", "SOURCE/attributes.json", "FOLDER/"),
    "rsync with a backup": copied("sh", "-ec", "rsync --backup SOURCE/attributes.json FOLDER; rm FOLDER/attributes.json~"),
    "tar": tar(),
    "tar in place": tar("--overwrite"),
    "tar unlinks first": tar("--unlink-first"),
    "git": git,
}


@pytest.fixture(params=MODES)
def mount(request, tmp_path, mounted):
    """A mount of a store with the array `a`, which is changed in one of the two ways."""
    store = tmp_path / "store.zarr"
    zarr.create_array(store, name="a", shape=[4], chunks=[4], dtype="int16", attributes=OLD)
    options = ["--cow", tmp_path / "upper"] + (["--write-through"] if request.param == "write-through" else [])
    made = mounted(store, *options)
    made.folder_of_a = made.files / "a"
    return made


def errors(mount):
    return (mount.path / ".zarrfs/errors").read_text()


def check(mount, tmp_path, expected):
    """Compares the attributes in the mount and in the store, and looks for what should not be there."""
    assert json.loads((mount.folder_of_a / "attributes.json").read_text()) == expected
    assert sorted(os.listdir(mount.folder_of_a)) == ["a.npy", "attributes.json", "metadata.json"]
    zarrfs("commit", mount.path)
    assert dict(zarr.open_array(mount.store / "a", mode="r").attrs) == expected
    kept = [path for path in (mount.store).rglob("*") if path.is_file()]
    assert {path.name for path in kept} == {"zarr.json"}, kept
    kept = [path for path in (tmp_path / "upper/keys").rglob("*") if path.is_file()]
    assert kept == []


# Invariant of `a_file_that_is_renamed_onto_a_document_is_an_edit`.
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_save_the_attributes(program, mount, tmp_path):
    PROGRAMS[program](mount.folder_of_a, tmp_path)
    check(mount, tmp_path, NEW)
    assert errors(mount) == ""


def failed(mount, what):
    """Whether a line says that what was written is not stored, once the file is released."""
    return wait_until(lambda: what in errors(mount) and "the attributes are unchanged" in errors(mount))


# Invariant of `a_file_that_is_renamed_onto_a_document_is_an_edit`.
@pytest.mark.parametrize("wrong", ['{"a": ', "[1]", ""])
def test_text_that_is_not_a_json_object_fails_close_and_sync(wrong, mount, tmp_path):
    place = mount.folder_of_a / "attributes.json"
    file = os.open(place, os.O_WRONLY | os.O_TRUNC)
    os.write(file, wrong.encode())
    for work in (os.fsync, os.fsync, os.close):
        with pytest.raises(OSError) as refused:
            work(file)
        assert refused.value.errno == errno.EINVAL
    assert failed(mount, "close\t/.zarrfs/files/a/attributes.json"), errors(mount)
    check(mount, tmp_path, OLD)


def test_an_invalid_document_written_by_a_shell_is_logged(mount, tmp_path):
    run("sh", "-c", "echo '{' > attributes.json", cwd=mount.folder_of_a)
    assert failed(mount, "close\t/.zarrfs/files/a/attributes.json"), errors(mount)
    assert len(errors(mount).splitlines()) == 1
    check(mount, tmp_path, OLD)


@pytest.mark.parametrize("made", ["renamed", "anew"])
def test_an_invalid_file_does_not_replace_the_attributes(made, mount, tmp_path):
    (tmp_path / "wrong").write_text("{")
    place = mount.folder_of_a / "attributes.json"
    if made == "renamed":
        shutil.copyfile(tmp_path / "wrong", mount.folder_of_a / "new")
        done = run("mv", "new", "attributes.json", cwd=mount.folder_of_a, check=False)
        assert (mount.folder_of_a / "new").read_text() == "{"
        os.unlink(mount.folder_of_a / "new")
    else:
        done = run("cp", "--remove-destination", tmp_path / "wrong", place, check=False)
    # mv has words of its own for EINVAL.
    assert done.returncode != 0 and (made == "renamed" or "Invalid argument" in done.stderr)
    assert wait_until(lambda: "the attributes are unchanged" in errors(mount))
    # A new file has the name until the kernel has released it, some time after the close.
    assert wait_until(lambda: place.exists() and place.read_text() != "{")
    check(mount, tmp_path, OLD)


def test_removed_attributes_reappear(mount, tmp_path):
    place = mount.folder_of_a / "attributes.json"
    place.unlink()
    assert not place.exists() and "attributes.json" not in os.listdir(mount.folder_of_a)
    assert wait_until(place.exists, seconds=15)
    check(mount, tmp_path, OLD)


def test_scratch_files_are_read_and_written_and_never_committed(mount, tmp_path):
    folder = mount.folder_of_a
    scratch = folder / "scratch"
    scratch.write_bytes(b"x" * 10000)
    with scratch.open("r+b") as file:
        file.seek(5000)
        file.write(b"y")
        file.truncate(6000)
        os.fsync(file)
    assert scratch.read_bytes() == b"x" * 5000 + b"y" + b"x" * 999
    for place in (scratch, folder / "attributes.json"):
        os.chmod(place, 0o600)
        os.chown(place, os.getuid(), os.getgid())
        os.utime(place, (1, 1))
        with pytest.raises(OSError) as refused:
            os.setxattr(place, "user.a", b"b")
        assert refused.value.errno == errno.ENOTSUP
    assert scratch.stat().st_mtime == 1 and scratch.stat().st_size == 6000
    assert "scratch" in os.listdir(folder)
    for refused_name in ("metadata.json", "zarr.json", ".zattrs"):
        (folder / "scratch2").write_text("{}")
        with pytest.raises(OSError) as refused:
            os.rename(folder / "scratch2", folder / refused_name)
        assert refused.value.errno == errno.EPERM
        os.unlink(folder / "scratch2")
    assert "nothing to commit" in zarrfs("status", mount.path).stdout
    os.unlink(scratch)
    check(mount, tmp_path, OLD)
