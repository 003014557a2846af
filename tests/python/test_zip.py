"""Zip archives as zarr-python, Python's zipfile and zip(1) write them, mounted without unpacking."""

import errno
import os
import subprocess
import zipfile

import numpy as np
import pytest
import zarr
from zarr.storage import ZipStore

import layout
from mounting import zarrfs

METHODS = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}


def fill(root):
    """Writes one group with three arrays; returns {path: content}."""
    random = np.random.default_rng(3)
    made = {
        "plain": (random.random((70, 50)), {"chunks": (20, 50), "compressors": None}),
        "a/packed": (np.arange(3000, dtype="<i4").reshape(30, 100), {"chunks": (7, 30)}),
    }
    if root.metadata.zarr_format == 3:
        sharded = random.integers(0, 9, (64, 64)).astype("<u2")
        made["a/sharded"] = (sharded, {"chunks": (8, 8), "shards": (32, 32)})
    for path, (content, more) in made.items():
        root.create_array(path, data=content, **more)
    return {path: content for path, (content, _) in made.items()}


def fill_folder(path, zarr_format=3):
    return fill(zarr.create_group(path, zarr_format=zarr_format))


def expect(mount, store, arrays, prefix=""):
    """Compares every array in both views with what was written."""
    for path, content in arrays.items():
        path = prefix + path
        npy = np.load(layout.decoded(mount.files, store, path, "npy"), mmap_mode="r")
        assert (npy.dtype, npy.tobytes()) == (content.dtype, content.tobytes()), path
        opened = zarr.open_array(mount.path / path, mode="r")
        np.testing.assert_array_equal(opened[...], content)


def run(*command, cwd):
    subprocess.run(list(map(str, command)), cwd=cwd, check=True, capture_output=True)


def zip_keys(archive):
    """Returns {name: bytes} as zipfile reads it, the last of each name."""
    with zipfile.ZipFile(archive) as opened:
        names = [n for n in opened.namelist() if not n.endswith("/")]
        return {name: opened.read(name) for name in names}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zip_store_of_zarr_python(tmp_path, mounted, zarr_format, method):
    path = tmp_path / "made.zarr.zip"
    with ZipStore(path, mode="w", compression=METHODS[method]) as store:
        arrays = fill(zarr.create_group(store, zarr_format=zarr_format))
    mount = mounted(path)
    expect(mount, path, arrays)
    names = zip_keys(path)
    assert {n for n in layout.walk(mount.path) if (mount.path / n).is_file()} == set(names)
    for name, content in names.items():
        assert (mount.path / name).read_bytes() == content, name


def test_the_root_array_has_the_archives_name(tmp_path, mounted):
    path = tmp_path / "made.zarr.ZIP"
    with ZipStore(path, mode="w") as store:
        zarr.create_array(store, data=np.arange(10))
    mount = mounted(path)
    assert "made.npy" in os.listdir(mount.files)
    np.testing.assert_array_equal(np.load(mount.files / "made.npy"), np.arange(10))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("options", [["-0"], ["-9"], ["-9", "-fd"], ["-0", "-fz"], ["-D"]], ids=" ".join)
def test_zip_of_a_folder(tmp_path, mounted, options, zarr_format):
    arrays = fill_folder(tmp_path / "made.zarr", zarr_format)
    run("zip", "-r", *options, tmp_path / "made.zip", ".", cwd=tmp_path / "made.zarr")
    mount = mounted(tmp_path / "made.zip")
    expect(mount, tmp_path / "made.zip", arrays)
    diff = ["diff", "-r", tmp_path / "made.zarr", mount.path]
    assert subprocess.run(diff, capture_output=True, text=True).stdout == ""


class Pipe:
    """A file that can only be written on, so that zipfile puts sizes behind the data."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        return self.file.write(data)

    def flush(self):
        self.file.flush()


def pack(folder, file, **more):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = more.get("comment", b"")
        for name in layout.walk(folder):
            if (folder / name).is_file():
                with archive.open(name, "w", force_zip64=more.get("zip64", False)) as entry:
                    entry.write((folder / name).read_bytes())


@pytest.mark.parametrize(
    "more", [{}, {"zip64": True}, {"comment": b"PK\5\6" * 999}, {"comment": b"c" * 65535}]
)
@pytest.mark.parametrize("streamed", [False, True])
def test_zipfile_of_python(tmp_path, mounted, more, streamed):
    arrays = fill_folder(tmp_path / "made.zarr")
    with open(tmp_path / "made.zip", "wb") as file:
        pack(tmp_path / "made.zarr", Pipe(file) if streamed else file, **more)
    expect(mounted(tmp_path / "made.zip"), tmp_path / "made.zip", arrays)


def test_times_are_those_of_the_files(tmp_path, mounted):
    (tmp_path / "file").write_text("x")
    os.utime(tmp_path / "file", (1_600_000_001, 1_600_000_001))
    run("zip", "made.zip", "file", cwd=tmp_path)
    assert (mounted(tmp_path / "made.zip").path / "file").stat().st_mtime == 1_600_000_001


def test_invalid_mountpoints_and_archives_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in/made.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b", "text")
    free = tmp_path / "free"
    free.mkdir()
    (tmp_path / "cut.zip").write_bytes(path.read_bytes()[:-5])
    (tmp_path / "text").write_text("text")
    refused = [
        (path, tmp_path / "in", "the mountpoint must not cover the store"),
        (path / "a", tmp_path / "in", "the mountpoint must not cover the store"),
        (path / "b", free, "no directory b in the zip archive"),
        (path / "a/b", free, "a/b is a file in the zip archive"),
        (tmp_path / "cut.zip", free, "cut.zip: not a zip archive, or cut off"),
        (tmp_path / "text", free, "text: not a Zarr store: zarrfs opens directories and zip archives"),
    ]
    for store, folder, reason in refused:
        done = zarrfs("mount", store, folder, check=False)
        errors = [line for line in done.stderr.splitlines() if not line.startswith("zarrfs: warning: ")]
        assert (done.returncode, len(errors)) == (2, 1), done.stderr
        assert reason in done.stderr, done.stderr


def test_a_relative_path_with_a_folder(tmp_path, monkeypatch, mounted):
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("in/key", "text")
    monkeypatch.chdir(tmp_path)
    assert (mounted("made.zip/in").path / "key").read_text() == "text"


def renamed(archive, folder, name_of):
    """Packs a folder under other names."""
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                opened.writestr(name_of(file.relative_to(folder).as_posix()), file.read_bytes())


# As bsdtar packs ".", with archives of whose version 3.6.2 these were compared, as other programs do with absolute paths,
# and as Windows PowerShell does.
NAMES = {"dot": "./{}".format, "slash": "/{}".format, "backslashes": lambda name: name.replace("/", "\\")}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_names_of_other_writers_are_keys(tmp_path, mounted, zarr_format, kind):
    arrays = fill_folder(tmp_path / "folder", zarr_format)
    archive = tmp_path / "a.zarr.zip"
    renamed(archive, tmp_path / "folder", NAMES[kind])
    expect(mounted(archive), archive, arrays)
    listed = zarrfs("tree", archive).stdout
    assert "2 groups" in listed and not listed.startswith("0")
    assert zarrfs("check", archive, check=False).returncode == 0


def test_a_key_that_is_a_file_and_a_prefix_has_both(tmp_path, mounted):
    """The only chunk of an array without dimensions has the name of a folder that another program made there."""
    archive = tmp_path / "a.zarr.zip"
    made = zarr.create_array(tmp_path / "folder", shape=(), dtype="<i4", fill_value=0, compressors=None)
    made[...] = 7
    renamed(archive, tmp_path / "folder", str)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("c/0", b"another")
    mount = mounted(archive)
    assert np.load(layout.decoded(mount.files, archive, "", "npy")) == 7
    assert (mount.path / "c/.zarrfs-object").read_bytes() == np.int32(7).tobytes()
    assert (mount.path / "c/0").read_bytes() == b"another"


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_a_wrong_checksum_is_an_error_in_every_view(tmp_path, mounted, size):
    archive = tmp_path / "a.zarr.zip"
    content = np.random.default_rng(1).integers(0, 255, size, dtype="u1")
    zarr.create_array(tmp_path / "folder", data=content, chunks=(size,), compressors=None)
    renamed(archive, tmp_path / "folder", str)
    packed = archive.read_bytes()
    place = packed.index(content[:50].tobytes()) + size // 2
    archive.write_bytes(packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :])
    mount = mounted(archive)
    for _ in range(3):
        with pytest.raises(OSError) as refused:
            (mount.path / "c/0").read_bytes()
        assert refused.value.errno == errno.EIO
    with pytest.raises(OSError) as refused:
        np.load(layout.decoded(mount.files, archive, "", "npy"))
    assert refused.value.errno == errno.EIO
    assert (mount.path / "zarr.json").read_bytes().startswith(b"{")
