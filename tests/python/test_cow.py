"""Mounts with --cow: programs write as to a directory of this machine, and the store gets exactly that, at a commit.

The suites of ../shared are in test_cow_suites.
"""

import contextlib
import errno
import hashlib
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

import mounting
import needs
from mounting import zarrfs


@pytest.fixture
def store(tmp_path):
    """Makes a store with one array of ten chunks, the last of them missing."""
    path = tmp_path / "some.zarr"
    root = zarr.create_group(path, zarr_format=3)
    array = root.create_array("a", shape=(100,), chunks=(10,), dtype="<i4", compressors=None)
    array[:90] = np.arange(90)
    return path


@pytest.fixture
def upper(tmp_path):
    return tmp_path / "upper"


@pytest.fixture
def cow(mounted, upper):
    """Mounts a store with an upper folder."""
    return lambda store, *options: mounted(store, "--cow", upper, *options)


def tree(folder):
    """Returns the digest of each file below a folder, by its path."""
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.relative_to(folder).parts[0] != ".zarrfs"
    }


def run(*words, cwd=None):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, cwd=cwd, timeout=120
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def installed(name):
    needs.require(name, shutil.which(name) is not None)


# What the commands say.


def change_some(folder):
    """Makes a change of each kind: two new keys, one changed, two removed, one moved."""
    (folder / "new.txt").write_text("new")
    (folder / "b").mkdir()
    (folder / "b/c").write_text("four")
    (folder / "a/c/0").write_bytes(b"\0" * 40)
    (folder / "a/c/1").unlink()
    (folder / "a/c/2").unlink()
    (folder / "a/c/3").rename(folder / "a/c/9")


STATUS = "{store}: 3 new, 1 changed, 3 removed, 87 bytes to write\n"
DIFF = """\
M a/c/0
D a/c/1
D a/c/2
D a/c/3
A a/c/9
A b/c
A new.txt
"""


@pytest.mark.parametrize("live", [True, False], ids=["live", "unmounted"])
def test_commands_list_and_commit_the_changes(store, upper, live):
    with mounting.Mount(store, "--cow", upper) as mount:
        place = mount.path if live else upper
        said = zarrfs("status", mount.path)
        assert said.stdout == f"{store}: nothing to commit\n"
        assert zarrfs("diff", mount.path).stdout == ""
        change_some(mount.path)
        (mount.path / "empty").mkdir()
        wanted = tree(mount.path)
        if live:
            check_commands(store, place)
    if not live:
        check_commands(store, place)
    del wanted["b/c"]
    assert tree(store) == wanted
    values = zarr.open_group(store, mode="r")["a"][...]
    expected = np.concatenate(
        [np.zeros(30), np.zeros(10), np.arange(40, 90), np.arange(30, 40)]
    )
    np.testing.assert_array_equal(values, expected)


def check_commands(store, place):
    before = tree(store)
    kept = "1 change cannot be committed and stays in the changes directory:\n    empty: empty directory\n"
    assert zarrfs("status", place).stdout == STATUS.format(store=store) + kept
    differs = zarrfs("diff", place, check=False)
    assert (differs.returncode, differs.stdout, differs.stderr) == (1, DIFF, "")
    dry = zarrfs("commit", "--dry-run", place).stdout
    assert dry == "dry run: 4 put (87 bytes), 3 removed\n" + kept
    assert tree(store) == before
    assert zarrfs("discard", place, "b").stdout == "1 change discarded\n"
    nothing = zarrfs("discard", place, "b/c", check=False)
    assert nothing.returncode != 0 and "no changes at this path" in nothing.stderr
    again = zarrfs("diff", place, check=False).stdout
    assert again == DIFF.replace("A b/c\n", "")
    assert zarrfs("commit", place).stdout == "3 put (83 bytes), 3 removed\n" + kept
    assert zarrfs("status", place).stdout == f"{store}: nothing to commit\n" + kept
    assert zarrfs("diff", place).stdout == ""


def test_a_conflict_is_named_and_committed_by_force(store, cow):
    mount = cow(store)
    (mount.path / "a/c/0").write_bytes(b"\1" * 40)
    (mount.path / "a/c/1").write_bytes(b"\1" * 40)
    (store / "a/c/0").write_bytes(b"\2" * 40)
    before = tree(store)
    refused = zarrfs("commit", mount.path, check=False)
    assert refused.returncode == 1
    assert refused.stdout == "a/c/0: was changed in the store by another program\n"
    assert "1 conflict; nothing was overwritten; use --force to overwrite" in refused.stderr
    assert tree(store) == before
    done = zarrfs("commit", "--force", mount.path)
    assert done.stdout == "2 put (80 bytes), 0 removed\n"
    assert (store / "a/c/0").read_bytes() == (store / "a/c/1").read_bytes() == b"\1" * 40
    assert zarrfs("diff", mount.path).stdout == ""


def test_an_upper_folder_has_one_mount_and_one_store(store, cow, upper, tmp_path):
    cow(store)
    second = tmp_path / "second"
    second.mkdir()
    refused = zarrfs("mount", store, second, "--cow", upper, check=False)
    assert refused.returncode != 0 and "in use" in refused.stderr, refused.stderr
    other = shutil.copytree(store, tmp_path / "other.zarr")
    free = tmp_path / "free"
    with mounting.Mount(store, "--cow", free):
        pass
    refused = zarrfs("mount", other, second, "--cow", free, check=False)
    assert refused.returncode != 0 and str(store) in refused.stderr, refused.stderr
    plain = zarrfs("status", store, check=False)
    assert plain.returncode != 0 and "neither a zarrfs mount" in plain.stderr


def test_an_upper_folder_knows_its_store_in_every_spelling(store, upper, tmp_path):
    link, folder = tmp_path / "link", tmp_path / "folder"
    link.symlink_to(store)
    folder.mkdir()
    spellings = [f"{store}/", store, link, os.path.relpath(store), f"file://{store}"]
    for number, spelled in enumerate(spellings):
        zarrfs("mount", spelled, folder, "--cow", upper)
        try:
            (folder / f"new{number}").write_text("1")
        finally:
            zarrfs("umount", folder)
    said = zarrfs("status", upper).stdout
    assert said == f"{store}: 5 new, 0 changed, 0 removed, 5 bytes to write\n"
    done = zarrfs("commit", "--store", f"{link}/", upper)
    assert done.stdout == "5 put (5 bytes), 0 removed\n"


@pytest.mark.parametrize("by", ["mount", "commit"])
def test_a_moved_store_is_accepted(store, upper, tmp_path, by):
    with mounting.Mount(store, "--cow", upper) as mount:
        (mount.path / "a/c/0").write_bytes(b"\1" * 40)
        (mount.path / "a/c/1").unlink()
        (mount.path / "new").write_text("1")
    moved = store.rename(tmp_path / "moved.zarr")
    zarr.create_group(tmp_path / "other.zarr")
    folder = tmp_path / "folder"
    folder.mkdir()

    def refusal(*words):
        refused = zarrfs(*words, check=False)
        assert refused.returncode == 2, refused.stdout
        return refused.stderr

    assert "--rebind" in refusal("mount", moved, folder, "--cow", upper)
    other = tmp_path / "other.zarr"
    said = refusal("mount", "--rebind", other, folder, "--cow", upper)
    assert f"not the same store as {store}" in said
    assert "--cow CHANGES" in refusal("mount", "--rebind", moved, folder)
    assert "--store" in refusal("commit", upper)
    assert f"not the same store as {store}" in refusal("commit", "--store", other, upper)
    said = zarrfs("status", "--store", moved, upper).stdout
    assert said == f"{moved}: 1 new, 1 changed, 1 removed, 41 bytes to write\n"
    # A look leaves the folder to its store.
    assert "--store" in refusal("status", upper)
    if by == "mount":
        with mounting.Mount(moved, "--rebind", "--cow", upper) as mount:
            assert (mount.path / "a/c/0").read_bytes() == b"\1" * 40
            refused = refusal("commit", "--store", other, mount.path)
            assert "in use" in refused
        done = zarrfs("commit", upper)
    else:
        done = zarrfs("commit", "--store", moved, upper)
    assert done.stdout == "2 put (41 bytes), 1 removed\n"
    assert zarrfs("status", upper).stdout == f"{moved}: nothing to commit\n"
    assert (moved / "a/c/0").read_bytes() == b"\1" * 40
    assert not (moved / "a/c/1").exists()


def test_a_commit_runs_on_a_full_disk(store, small, mounted):
    mount = mounted(store, "--cow", small / "upper")
    (mount.path / "a/c/0").write_bytes(b"\1" * 40)
    (mount.path / "a/c/1").unlink()
    with (small / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while filler.write(b"x" * 4096):
            pass
    assert zarrfs("commit", mount.path).stdout == "1 put (40 bytes), 1 removed\n"
    assert (store / "a/c/0").read_bytes() == b"\1" * 40
    (mount.path / "a/c/2").unlink()
    assert zarrfs("commit", mount.path).stdout == "0 put (0 bytes), 1 removed\n"


def write_element(path, place, value):
    """Writes an element and leaves the file open; returns its descriptor."""
    file = os.open(path, os.O_RDWR)
    os.pwrite(file, np.int32(value).tobytes(), 4 * place)
    return file


def end(mount, file, number=signal.SIGTERM):
    """Ends a daemon by a signal while a program has a file open."""
    mount.process.send_signal(number)
    assert mount.process.wait(mounting.LIMIT) == 0
    with contextlib.suppress(OSError):
        os.close(file)


# Invariant (writing): On a signal, data written to open decoded files are stored; no write is accepted after that.
@pytest.mark.parametrize(
    "options, number", [([], signal.SIGTERM), (["--write-through"], signal.SIGINT)], ids=["cow", "through"]
)
def test_a_signal_stores_the_writes_of_an_open_file(store, upper, daemon, options, number):
    mount = daemon(store, "--cow", upper, *options)
    end(mount, write_element(mount.files / "a/a.raw", 12, -7), number)
    if not options:
        assert zarrfs("commit", upper).stdout == "1 put (40 bytes), 0 removed\n"
    values = zarr.open_group(store, mode="r")["a"][...]
    assert list(values[11:14]) == [11, -7, 13]


# Invariant of `test_a_signal_stores_the_writes_of_an_open_file`.
def test_a_signal_names_writes_that_cannot_be_stored(store, upper, daemon):
    mount = daemon(store, "--cow", upper, "--write-through")
    file = write_element(mount.files / "a/a.raw", 12, -7)
    (store / "a/c/1").write_bytes(b"\2" * 40)
    end(mount, file)
    said = mount.complaints()
    assert "a/a.raw" in said and "writes are lost" in said, said
    assert (store / "a/c/1").read_bytes() == b"\2" * 40


def test_a_signal_rescues_a_key_that_is_being_written(store, upper, daemon):
    mount = daemon(store, "--cow", upper)
    end(mount, write_element(mount.path / "a/c/1", 0, -7))
    said = mount.complaints()
    assert "a/c/1" in said and str(upper / "rescued") in said, said
    status = zarrfs("status", upper).stdout
    (rescued,) = (upper / "rescued").iterdir()
    assert status.startswith(f"{store}: nothing to commit\n1 file incomplete") and status.endswith(f"    {rescued}\n"), status


def test_attributes_that_the_store_cannot_hold_are_named(store, cow, upper):
    mount = cow(store)
    (mount.path / "b").mkdir()
    (mount.path / "b/new").write_text("1")
    for name in ("b", "b/new", "a/c/1"):
        os.setxattr(mount.path / name, "user.note", b"x")
    kept = "1 change cannot be committed and stays in the changes directory:\n"
    kept += "    a/c/1: owner, mode, times or extended attributes\n"
    lost = "    b: extended attributes\n    b/new: extended attributes\n"
    said = zarrfs("status", mount.path).stdout
    assert said.endswith(f"{kept}2 names will lose attributes that the store cannot store:\n{lost}")
    said = zarrfs("commit", "--dry-run", mount.path).stdout
    assert said.endswith(f"2 names would lose attributes that the store cannot store:\n{lost}")
    said = zarrfs("commit", mount.path).stdout
    assert said == f"1 put (1 byte), 0 removed\n{kept}2 names lost attributes that the store cannot store:\n{lost}"
    assert os.getxattr(mount.path / "a/c/1", "user.note") == b"x"
    assert "lost" not in zarrfs("commit", mount.path).stdout


def archived(store):
    """Packs a store as an archive beside it."""
    return Path(shutil.make_archive(store, "zip", store))


def test_an_archive_is_not_written_through(store, upper, tmp_path, cow):
    archive, folder = archived(store), tmp_path / "folder"
    folder.mkdir()
    refused = zarrfs("mount", "--write-through", "--cow", upper, archive, folder, check=False)
    assert refused.returncode == 2 and "read-only: use --cow CHANGES" in refused.stderr
    assert not upper.exists()
    mount = cow(archive)
    assert zarrfs("commit", mount.path).stdout == "nothing to commit\n"
    (mount.path / "a/c/0").unlink()
    for words in ([], ["--dry-run"]):
        refused = zarrfs("commit", *words, mount.path, check=False)
        assert refused.returncode == 2 and "zarrfs commit --to" in refused.stderr
    said = zarrfs("status", mount.path).stdout
    assert said == f"{archive}: 0 new, 0 changed, 1 removed, 0 bytes to write\n"


@pytest.mark.parametrize("name", ["new.zip", "new.zarr.ZIP/", "new.ozx"])
def test_a_commit_to_an_archive_is_refused(store, cow, tmp_path, name):
    mount = cow(store)
    refused = zarrfs("commit", "--to", f"{tmp_path}/{name}", mount.path, check=False)
    assert refused.returncode == 2 and "zip archives are read-only" in refused.stderr
    assert not (tmp_path / name).exists()
    refused = zarrfs("commit", "--to", f"s3://bucket/{name}", mount.path, check=False)
    assert refused.returncode == 2 and "zip archives are read-only" in refused.stderr


def test_nothing_is_committed_into_a_mount(store, upper, tmp_path, mounted, cow):
    below = mounted(store, "--cow", tmp_path / "below")
    folder = tmp_path / "folder"
    folder.mkdir()
    words = ["mount", "--write-through", "--cow", upper, below.path, folder]
    refused = zarrfs(*words, check=False)
    assert refused.returncode == 2 and "inside a zarrfs mount" in refused.stderr
    mount = cow(below.path)
    (mount.path / "a/c/0").unlink()
    refused = zarrfs("commit", mount.path, check=False)
    assert refused.returncode == 2 and "inside a zarrfs mount" in refused.stderr
    refused = zarrfs("commit", "--to", below.path / "new", mount.path, check=False)
    assert refused.returncode == 2 and "inside a zarrfs mount" in refused.stderr
    assert not (below.path / "new").exists() and (below.path / "a/c/0").exists()


# What programs do.


def a_folder(path, count=60):
    """Makes a folder with files and folders that have names and sizes of many kinds."""
    for number in range(count):
        file = path / f"d {number % 5}" / f"f-{number % 3}" / f"n{number}\u00e9.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.Random(number).randbytes(number * 997 % 70_000))
    return path


def test_copies_are_byte_for_byte(store, cow, tmp_path):
    source, mount = a_folder(tmp_path / "source"), cow(store)
    expected = tree(source)
    run("cp", "-a", source, mount.path / "copy")
    assert tree(mount.path / "copy") == expected
    file = next(path for path in source.rglob("*") if path.is_file())
    copied = mount.path / "copy" / file.relative_to(source)
    assert int(copied.stat().st_mtime) == int(file.stat().st_mtime)
    run("tar", "-C", source, "-cf", mount.path / "all.tar", ".")
    (mount.path / "untarred").mkdir()
    run("tar", "-C", mount.path / "untarred", "-xf", mount.path / "all.tar")
    assert tree(mount.path / "untarred") == expected
    run("mv", mount.path / "untarred", mount.path / "a/moved")
    run("rm", "-r", mount.path / "copy")
    zarrfs("commit", mount.path)
    assert tree(store) == tree(mount.path)
    assert tree(store / "a/moved") == expected


def test_rsync_writes_and_updates(store, cow, tmp_path):
    installed("rsync")
    source, mount = a_folder(tmp_path / "source"), cow(store)
    target = mount.path / "copy"
    run("rsync", "-a", f"{source}/", target)
    assert tree(target) == tree(source)
    some = [path for path in source.rglob("*") if path.is_file()]
    some[0].unlink()
    some[1].write_bytes(b"x" * 100_000)
    some[2].rename(some[2].with_name("renamed"))
    for option in ("--inplace", "--delete"):
        run("rsync", "-a", "--delete", "--checksum", option, f"{source}/", target)
    assert tree(target) == tree(source)
    assert run("rsync", "-ain", "--delete", f"{source}/", target) == ""


def test_git_keeps_a_repository(store, cow):
    installed("git")
    mount = cow(store)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", mount.path]
    run("git", "init", "-q", mount.path)
    run(*git, "add", "-A", "--", "a", "zarr.json")
    run(*git, "commit", "-q", "-m", "first")
    (mount.path / "a/c/0").write_bytes(b"changed")
    run(*git, "commit", "-q", "-a", "-m", "second")
    run(*git, "checkout", "-q", "HEAD~1", "--", "a/c/0")
    run(*git, "gc", "-q")
    run(*git, "fsck", "--strict")
    assert (mount.path / "a/c/0").read_bytes() == (store / "a/c/0").read_bytes()
    zarrfs("commit", mount.path)
    assert tree(store) == tree(mount.path)
    # No key holds an empty folder, and git knows a repository by this one.
    (store / ".git/refs").mkdir(exist_ok=True)
    run("git", "-C", store, "fsck", "--strict")


def test_a_mapped_file_is_written(store, cow):
    mount = cow(store)
    for name, count in (("a/c/0", 10), ("big", 1 << 20)):
        path = mount.path / name
        if name == "big":
            path.write_bytes(bytes(count * 4))
        mapped = np.memmap(path, dtype="<i4", mode="r+", shape=(count,))
        mapped[2:count:3] = 7
        mapped.flush()
        del mapped
        found = np.fromfile(path, dtype="<i4")
        assert len(found) == count and (found[2::3] == 7).all() and found[1] in (0, 1)
    zarrfs("commit", mount.path)
    assert tree(store) == tree(mount.path)
    assert (zarr.open_group(store, mode="r")["a"][2:10:3] == 7).all()


# Readers and writers of Zarr.


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.filterwarnings("ignore")
def test_zarr_python_writes_arrays(form, tmp_path, cow, upper):
    path, plain = tmp_path / "made.zarr", tmp_path / "plain.zarr"
    zarr.create_group(path, zarr_format=form)
    zarr.create_group(plain, zarr_format=form)
    mount = cow(path)
    for place in (mount.path, plain):
        write_arrays(place, form)
    assert tree(mount.path) == tree(plain)
    zarrfs("commit", mount.path)
    assert tree(path) == tree(plain)
    for place in (mount.path, plain):
        change_arrays(place)
    assert tree(mount.path) == tree(plain)
    zarrfs("commit", mount.path)
    assert tree(path) == tree(plain)
    assert zarrfs("diff", mount.path).stdout == ""


def write_arrays(place, form):
    root = zarr.open_group(place, mode="r+")
    values = np.random.default_rng(5).normal(size=(50, 40)).astype("f4")
    shards = {"shards": (20, 20)} if form == 3 else {}
    array = root.create_array("g/a", shape=(50, 40), chunks=(10, 10), dtype="f4", **shards)
    array[...] = values
    array.attrs["unit"] = "K"
    other = root.create_array("line", shape=(0,), chunks=(7,), dtype="i8")
    other.append(np.arange(30))
    zarr.consolidate_metadata(place)


def change_arrays(place):
    root = zarr.open_group(place, mode="r+", use_consolidated=False)
    array = root["g/a"]
    array[3:17, 5:33] = 9
    array.resize((33, 40))
    array.attrs.update(unit="C", more=[1, 2])
    root["line"].append(np.arange(12))
    root["line"].resize((20,))
    root.create_group("h/i")
    del root["g/a"].attrs["more"]
    root.create_array("gone", shape=(4,), chunks=(2,), dtype="u1")[...] = 1
    del root["gone"]
    zarr.consolidate_metadata(place)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [2, 3])
def test_xarray_writes_in_every_mode(form, tmp_path, cow):
    import xarray
    path = tmp_path / "made.zarr"
    zarr.create_group(path, zarr_format=form)
    mount, plain = cow(path), tmp_path / "plain.zarr"
    values = np.arange(600.0).reshape(20, 30)
    data = xarray.Dataset({"t": (("x", "y"), values)}, coords={"x": np.arange(20)})
    for place in (mount.path / "x", plain):
        data.to_zarr(place, mode="w", zarr_format=form, consolidated=True)
        data.to_zarr(place, mode="w", zarr_format=form, consolidated=True)
        extra = xarray.Dataset({"u": (("x",), np.arange(20))})
        extra.to_zarr(place, mode="a")
        region = {"x": slice(5, 9), "y": slice(0, 30)}
        part = (data.isel(region) * 2).drop_vars("x")
        part.to_zarr(place, region=region)
        longer = xarray.merge([data, extra]).assign_coords(x=np.arange(20, 40))
        longer.to_zarr(place, append_dim="x")
    assert tree(mount.path / "x") == tree(plain)
    zarrfs("commit", mount.path)
    found = xarray.open_zarr(path / "x").load()
    xarray.testing.assert_identical(found, xarray.open_zarr(plain).load())
    assert found.sizes["x"] == 40


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
def test_tensorstore_writes(driver, tmp_path, cow):
    import tensorstore
    path = tmp_path / "made.zarr"
    zarr.create_group(path)
    mount = cow(path)
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{mount.path}/ts/"}}
    array = tensorstore.open(
        spec, create=True, dtype=tensorstore.uint16, shape=[64, 64]
    ).result()
    values = np.arange(4096, dtype="u2").reshape(64, 64)
    array.write(values).result()
    array[10:20, 10:20].write(np.uint16(5)).result()
    values[10:20, 10:20] = 5
    zarrfs("commit", mount.path)
    np.testing.assert_array_equal(zarr.open_array(path / "ts", mode="r")[...], values)


@pytest.mark.parametrize("answer, is_discarded", [("y\n", True), ("\n", False), ("all\n", False)])
def test_all_changes_are_discarded_after_a_question(store, cow, answer, is_discarded):
    mount = cow(store)
    (mount.path / "new").write_bytes(b"1")
    asked, terminal = pty.openpty()
    command = [mounting.program(), "discard", mount.path]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        question = b""
        while b"[y/N]" not in question:
            question += os.read(asked, 1000)
        os.write(asked, answer.encode())
        said = process.stdout.read()
    os.close(asked)
    os.close(terminal)
    assert f"Discard 1 change of {store}?" in question.decode()
    assert (process.returncode == 0) == is_discarded
    assert said == ("1 change discarded\n" if is_discarded else "nothing was discarded\n")
    assert (mount.path / "new").exists() != is_discarded


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for line in sys.stdin:
    offset, length = map(int, line.split())
    try:
        os.pwrite(file, b"\\x09" * length, offset) if length else os.fsync(file)
        print("done", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


@pytest.mark.parametrize("path", [["--all"], ["a"], ["a/c/0"]])
@pytest.mark.parametrize("length", [40, 4])
@pytest.mark.parametrize("is_synced", [False, True])
def test_unstored_writes_of_an_open_file_are_discarded(store, cow, path, length, is_synced):
    """Another process has the file open: starting a process here would make the kernel flush the file."""
    mount = cow(store)
    before = tree(store)
    decoded = mount.files / "a/a.raw"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, decoded],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as writer:
        def asked(offset, length):
            writer.stdin.write(f"{offset} {length}\n")
            return writer.stdout.readline().strip()

        if is_synced:
            assert (asked(0, 4), asked(0, 0)) == ("done", "done")
        assert asked(0, length) == "done"
        assert "open for writing" in zarrfs("status", mount.path).stdout
        zarrfs("discard", mount.path, *path)
        assert asked(0, 0) == str(errno.ESTALE)
        assert asked(0, 0) == "done"
        writer.stdin.close()
    assert decoded.read_bytes()[:4] == bytes(4)
    assert zarrfs("commit", mount.path).stdout == "nothing to commit\n"
    assert tree(store) == before


def test_an_array_that_is_made_again_after_a_discard_is_read_at_once(store, cow):
    mount = cow(store)
    decoded = mount.files / "b" / "b.raw"

    def make(value):
        root = zarr.open_group(mount.path, mode="r+")
        array = root.create_array("b", shape=(20,), chunks=(10,), dtype="<i4", overwrite=True)
        array[:] = value

    for value in range(1, 4):
        make(value)
        assert np.fromfile(decoded, "<i4").tolist() == [value] * 20
        assert "discarded" in zarrfs("discard", mount.path, "b").stdout
        with pytest.raises(FileNotFoundError):
            np.fromfile(decoded, "<i4")


def test_a_small_write_with_fsync_writes_few_bytes(store, upper, daemon):
    """The first two syncs of a large file copy it, the others write only the changed bytes and lines of the journal. One more
    sync may copy it if a forked process has closed the file, and so flushed it."""
    length = 20 << 20
    (store / "large").write_bytes(bytes(length))
    mount = daemon(store, "--cow", upper)

    def written():
        lines = Path(f"/proc/{mount.process.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])

    with open(mount.path / "large", "r+b", buffering=0) as file:
        def write(number):
            os.pwrite(file.fileno(), b"x" * 100, number * 1000)
            os.fsync(file.fileno())

        for number in range(3):
            write(number)
        before = written()
        assert before > length
        for number in range(3, 23):
            write(number)
        assert written() - before < 1.2 * length
    expected = bytearray(length)
    for number in range(23):
        expected[number * 1000 : number * 1000 + 100] = b"x" * 100
    assert (mount.path / "large").read_bytes() == expected
