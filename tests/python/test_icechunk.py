"""Icechunk repositories: each revision reads as icechunk-python does, wherever the repository is.

tests/data/icechunk/make.py made the repositories, of specification 1 and 2, and wrote down what they read as.
"""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import icechunk_server
import layout
import mounting
import places
from mounting import zarrfs

DATA = mounting.ROOT / "tests/data/icechunk"
# What the references in `virtual` name; see make.py.
LOCAL = Path("/tmp/zarrfs-icechunk")
S3 = "s3://bucket/virtual"
HTTP_PORT = 47813
MODIFIED = 1_700_000_000


class Fixture:
    """An unpacked archive: repositories and what they read as."""

    def __init__(self, name, folder):
        subprocess.run(["tar", "-xzf", DATA / f"{name}.tar.gz", "-C", folder], check=True)
        self.folder, self.repo, self.later = folder, folder / "repo", folder / "later"
        self.expected = json.loads((folder / "expected.json").read_text())

    def revisions(self, state="repo"):
        return self.expected[state]["revisions"]

    def become_later(self):
        """Brings the repository into its later state, as a commit does: the branch last."""
        changed = ["repo", "refs"]
        shutil.copytree(self.later, self.repo, dirs_exist_ok=True, ignore=lambda _, names: set(changed) & set(names))
        for name in changed:
            if (self.later / name).is_dir():
                shutil.copytree(self.later / name, self.repo / name, dirs_exist_ok=True)
            elif (self.later / name).exists():
                shutil.copy(self.later / name, self.repo / "next")
                os.rename(self.repo / "next", self.repo / name)
        for ref in self.repo.glob("refs/*/ref.json"):
            if not (self.later / ref.relative_to(self.repo)).exists():
                ref.unlink()


@pytest.fixture(params=[1, 2])
def history(request, tmp_path):
    return Fixture(f"history{request.param}", tmp_path)


@pytest.fixture(params=[1, 2])
def expired(request, tmp_path):
    return Fixture(f"expired{request.param}", tmp_path)


@pytest.fixture(params=[1, 2])
def virtual(request, tmp_path):
    fixture = Fixture(f"virtual{request.param}", tmp_path)
    LOCAL.mkdir(exist_ok=True)
    (tmp_path / "virtual").mkdir()
    for folder in [LOCAL, LOCAL / "named", tmp_path / "virtual"]:
        folder.mkdir(exist_ok=True)
        for name in ["grid.nc", "a b%.nc"]:
            content = (tmp_path / "grid.nc").read_bytes()
            if (folder / name).exists() and (folder / name).read_bytes() == content:
                continue
            copy = folder / f"{name}.{os.getpid()}"
            shutil.copy(tmp_path / "grid.nc", copy)
            os.utime(copy, (MODIFIED, MODIFIED))
            os.rename(copy, folder / name)
    return fixture


def described(values):
    values = np.ascontiguousarray(values)
    digest = hashlib.sha256(values.tobytes()).hexdigest()
    return {"dtype": values.dtype.str, "shape": list(values.shape), "sha256": digest}


def members(folder):
    """Returns {path: node} of the store at a path."""
    return dict(zarr.open_group(folder, mode="r", use_consolidated=False).members(max_depth=None))


def check_store(folder, revision):
    """Compares a store with what a revision has to be."""
    found = members(folder)
    arrays = {path: described(node[...]) for path, node in found.items() if isinstance(node, zarr.Array)}
    assert arrays == revision["arrays"]
    assert sorted(found.keys() - arrays.keys()) == revision["groups"]


def check_files(files, store, revision):
    """Compares the .npy files of a files view with what a revision has to be."""
    for path, expected in revision["arrays"].items():
        found = np.load(layout.decoded(files, store, path, "npy"))
        assert described(found) == expected, path


def log_of(revision):
    return "".join(f"{c['id']}  {c['time']}  {c['message'].splitlines()[0]}\n" for c in revision["commits"])


def error_of(path):
    """Returns the errno with which reading a file fails."""
    with pytest.raises(OSError) as failed:
        Path(path).read_bytes()
    return failed.value.errno


def fails(path):
    try:
        path.read_bytes()
    except OSError:
        return True
    return False


def test_the_tip_of_main_is_shown(history, mounted):
    mount = mounted(history.repo)
    main = history.revisions()["branch=main"]
    check_store(mount.path, main)
    check_files(mount.files, history.repo, main)
    for view in ["v3", "v2"]:
        check_store(mount.path / ".zarrfs" / view, main)
    assert (mount.path / ".zarrfs/log").read_text() == log_of(main)
    dataset = xarray.open_dataset(mount.path / "cf", engine="zarr", consolidated=False)
    assert dataset["temp"].sel(y=1.0).values.tolist() == [6, 7, 8]
    assert not os.access(mount.path / "zarr.json", os.W_OK)


def test_every_revision_is_a_directory(history, mounted):
    mount = mounted(history.repo)
    refs = mount.path / ".zarrfs/refs"
    assert sorted(os.listdir(refs)) == ["branch", "snapshot", "tag"]
    assert sorted(os.listdir(refs / "branch")) == ["dev", "main", "old"]
    assert os.listdir(refs / "tag") == ["v1"]
    for name, revision in history.revisions().items():
        kind, _, name = name.partition("=")
        check_store(refs / kind / name, revision)
        assert revision["snapshot"] in os.listdir(refs / "snapshot")
        check_store(refs / "snapshot" / revision["snapshot"], revision)
    for absent in ["tag/gone", "branch/none", "snapshot/none", "other"]:
        assert not (refs / absent).exists()


@pytest.mark.parametrize("how", ["option", "query", "-o"])
def test_options_and_urls_choose_a_revision(how, history, mounted):
    revisions = history.revisions()
    chosen = [("branch", "dev"), ("tag", "v1"), ("snapshot", revisions["tag=v1"]["snapshot"])]
    for kind, name in chosen:
        revision = revisions["branch=dev" if name == "dev" else "tag=v1"]
        if how == "query":
            mount = mounted(f"file://{history.repo}?{kind}={name}")
        elif how == "option":
            mount = mounted(history.repo, f"--{kind}", name)
        else:
            mount = mounted(history.repo, "-o", f"{kind}={name}")
        check_store(mount.path, revision)
        assert (mount.path / ".zarrfs/log").read_text() == log_of(revision)


def test_missing_revisions_are_errors(history, sample, tmp_path):
    directory = tmp_path / "mnt"
    directory.mkdir()
    for options, words in [
        (["--branch", "nope"], ["nope", "dev, main, old"]),
        (["--tag", "gone"], ["gone", "v1"]),
        (["--snapshot", "12"], ["12", "snapshot"]),
        (["--snapshot", "0" * 20], ["0" * 20]),
        (["--branch", "a/b"], ["a/b"]),
        (["--branch", ""], ["empty"]),
    ]:
        done = zarrfs("mount", *options, history.repo, directory, check=False)
        assert done.returncode == 2, done
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and all(word in lines[0] for word in words), done.stderr
    done = zarrfs("mount", "--branch", "main", "--tag", "v1", history.repo, directory, check=False)
    assert done.returncode == 2 and "--tag" in done.stderr, done
    done = zarrfs("info", f"{history.repo}?branch=dev", "--tag", "v1", check=False)
    assert done.returncode == 2 and "branch=dev" in done.stderr, done
    done = zarrfs("info", sample, "--branch", "main", check=False)
    assert done.returncode == 2 and "not an Icechunk repository" in done.stderr, done


def test_commands(history, tmp_path):
    repo, main = history.repo, history.revisions()["branch=main"]
    tree = zarrfs("tree", repo).stdout
    assert "tas  float32 (10, 20)  chunks (4, 7)  zstd  503 bytes in 6 of 9 chunks" in tree
    assert f"{len(main['groups']) + 1} groups, {len(main['arrays'])} arrays" in tree
    assert "6 of 9 chunks stored" in zarrfs("map", f"{repo}/tas").stdout
    assert "6 of 9" in zarrfs("info", f"{repo}/tas", "--branch", "dev").stdout
    assert "0 errors" in zarrfs("check", repo).stdout
    assert "values from -1.0 to 159.0" in zarrfs("preview", f"{repo}/tas").stdout
    assert json.loads(zarrfs("cat", f"{repo}/tas/zarr.json").stdout)["shape"] == [10, 20]
    zarrfs("cp", f"{repo}/tas", tmp_path / "tas.npy", "--tag", "v1")
    assert described(np.load(tmp_path / "tas.npy")) == history.revisions()["tag=v1"]["arrays"]["tas"]
    zarrfs("cp", repo, tmp_path / "copy.zarr", "--as", "v3")
    check_store(tmp_path / "copy.zarr", main)


def test_two_revisions_are_compared(history):
    expected = "A group /new\nM array /tas\n    [0:1, 0:1] 1 element\n"
    places = [f"{history.repo}?tag=v1", f"{history.repo}?branch=dev"]
    for options in [[], ["--values"]]:
        done = zarrfs("diff", *places, *options, check=False)
        assert (done.returncode, done.stdout) == (1, expected), done.stderr
    done = zarrfs("diff", *places[:1] * 2, "--values")
    assert done.stdout == ""
    with icechunk_server.serving(history.folder) as server:
        places = ["s3://bucket/repo?tag=v1", "s3://bucket/repo?branch=dev"]
        done = zarrfs("diff", *places, "--values", *server.s3, check=False)
        assert (done.returncode, done.stdout) == (1, expected), done.stderr


def test_on_s3(history, mounted):
    revisions = history.revisions()
    with icechunk_server.serving(history.folder) as server:
        mount = mounted("s3://bucket/repo", *server.s3)
        check_store(mount.path, revisions["branch=main"])
        check_files(mount.files, history.repo, revisions["branch=main"])
        check_store(mount.path / ".zarrfs/refs/branch/dev", revisions["branch=dev"])
        assert (mount.path / ".zarrfs/log").read_text() == log_of(revisions["branch=main"])
        mount = mounted("s3://bucket/repo?tag=v1", *server.s3)
        check_store(mount.path, revisions["tag=v1"])
        assert "v3 group" in zarrfs("tree", "s3://bucket/repo", *server.s3).stdout


def test_on_a_web_server(history, mounted):
    revisions = history.revisions()
    with icechunk_server.serving(history.folder) as server:
        mount = mounted(f"{server.url}/repo")
        check_store(mount.path, revisions["branch=main"])
        mount = mounted(f"{server.url}/repo", "--branch", "dev")
        check_store(mount.path, revisions["branch=dev"])
        assert sorted(os.listdir(mount.path / ".zarrfs/refs/branch")) == ["dev", "main", "old"]


@pytest.mark.parametrize("name", ["s3", "azure", "gcs", "webdav"])
def test_on_other_object_stores_and_webdav(name, history):
    revisions = history.revisions()
    place = places.PLACES[name]()
    place.upload(history.repo)
    with place.mount() as mount:
        check_store(mount.path, revisions["branch=main"])
        check_store(mount.path / ".zarrfs/refs/tag/v1", revisions["tag=v1"])
        assert (mount.path / ".zarrfs/log").read_text() == log_of(revisions["branch=main"])
    with place.mount("--branch", "dev") as mount:
        check_store(mount.path, revisions["branch=dev"])


def test_on_a_web_server_without_listings(history, mounted):
    revisions = history.revisions()
    with icechunk_server.serving(history.folder, lists=False) as server:
        for query in ["branch=main", "branch=dev", "tag=v1"]:
            mount = mounted(f"{server.url}/repo?{query}")
            check_store(mount.path, revisions[query])
            check_files(mount.files, history.repo, revisions[query])
        # Names are not known, but each opens: a server that does not list cannot say which branches there are.
        refs = mount.path / ".zarrfs/refs"
        check_store(refs / "branch/old", revisions["branch=old"])
        if (history.repo / "repo").exists():
            assert sorted(os.listdir(refs / "branch")) == ["dev", "main", "old"]
        else:
            with pytest.raises(OSError) as refused:
                os.listdir(refs / "branch")
            assert refused.value.errno == errno.EOPNOTSUPP
        done = zarrfs("tree", f"{server.url}/repo?branch=none", check=False)
        assert done.returncode == 2 and "none" in done.stderr, done


def test_a_commit_is_followed(history, mounted):
    mount = mounted(history.repo)
    npy = layout.decoded(mount.files, history.repo, "tas", "npy")
    key = mount.path / "tas/c/0/0"
    with open(key, "rb", buffering=0) as before, open(npy, "rb", buffering=0) as decoded:
        bytes_before, npy_before = key.read_bytes(), npy.read_bytes()
        inode = os.stat(key).st_ino
        history.become_later()
        later = history.revisions("later")["branch=main"]
        # The TTL of a local store is a second.
        assert mounting.wait_until(lambda: not (mount.path / "scalar").exists(), 5)
        check_store(mount.path, later)
        check_files(mount.files, history.repo, later)
        assert os.stat(key).st_ino != inode
        assert not (mount.path / "scalar").exists()
        for file, content in [(before, bytes_before), (decoded, npy_before)]:
            try:
                assert os.pread(file.fileno(), len(content), 0) == content
            except OSError as error:
                assert error.errno == errno.ESTALE
    assert (mount.path / ".zarrfs/log").read_text() == log_of(later)
    assert sorted(os.listdir(mount.path / ".zarrfs/refs/branch")) == ["dev", "main"]


def test_a_commit_is_followed_on_s3(history, mounted):
    with icechunk_server.serving(history.folder) as server:
        mount = mounted("s3://bucket/repo", *server.s3, "--metadata-ttl", "1")
        lasting = mounted("s3://bucket/repo", *server.s3, "--metadata-ttl", "forever")
        before = history.revisions()["branch=main"]
        for path in [mount.path, lasting.path]:
            check_store(path, before)
        history.become_later()
        later = history.revisions("later")["branch=main"]
        assert mounting.wait_until(lambda: not (mount.path / "scalar").exists(), 5)
        check_store(mount.path, later)
        check_files(mount.files, history.repo, later)
        check_store(lasting.path, before)


def test_no_read_mixes_two_commits(history, mounted):
    """A read returns the values of one commit, or ESTALE, if the branch moves in between."""
    states = [history.revisions(state)["branch=main"]["arrays"] for state in ["repo", "later"]]
    heads = [name for name in ["repo", "refs/branch.main/ref.json"] if (history.repo / name).is_file()]
    before = {name: (history.repo / name).read_bytes() for name in heads}
    history.become_later()
    after = {name: (history.repo / name).read_bytes() for name in heads}
    mount = mounted(history.repo)
    end, ending, seen = time.monotonic() + 5, threading.Event(), set()

    def commit():
        for contents in itertools.cycle([before, after]):
            for name, content in contents.items():
                (history.repo / "next").write_bytes(content)
                os.rename(history.repo / "next", history.repo / name)
            if ending.wait(0.3):
                return

    writer = threading.Thread(target=commit)
    writer.start()
    try:
        while time.monotonic() < end:
            for name in ["tas", "sharded"]:
                try:
                    found = described(np.load(layout.decoded(mount.files, history.repo, name, "npy")))
                except OSError as error:
                    assert error.errno == errno.ESTALE
                    continue
                assert found in [arrays[name] for arrays in states], name
                seen.add(found["sha256"])
    finally:
        ending.set()
        writer.join()
    assert len(seen) == 4


def test_a_branch_that_is_deleted_is_an_error(history, mounted):
    """The chunks of a deleted branch must not look missing."""
    mount = mounted(history.repo, "--branch", "old")
    key = mount.path / "tas/c/0/1"
    history.become_later()
    assert mounting.wait_until(lambda: fails(key), 5)
    assert error_of(key) == errno.EIO
    assert error_of(layout.decoded(mount.files, history.repo, "tas", "npy")) == errno.EIO
    assert "old" in (mount.path / ".zarrfs/errors").read_text()


def test_a_mounted_snapshot_does_not_follow_commits(history, mounted):
    snapshot = history.revisions()["branch=main"]["snapshot"]
    mount = mounted(history.repo, "--snapshot", snapshot)
    history.become_later()
    check_store(mount.path, history.revisions()["branch=main"])
    check_store(mount.path / ".zarrfs/refs/branch/main", history.revisions("later")["branch=main"])


def test_changes_over_a_repository(history, mounted, tmp_path):
    changes = tmp_path / "changes"
    mount = mounted(history.repo, "--cow", changes)
    array = zarr.open_array(mount.path / "tas", mode="r+")
    array[0, 0] = 5
    assert array[0, 0] == 5
    assert "tas/c/0/0" in zarrfs("diff", mount.path, check=False).stdout
    done = zarrfs("commit", mount.path, check=False)
    assert done.returncode == 2 and "Icechunk" in done.stderr and "read-only" in done.stderr, done
    assert (mount.path / ".zarrfs/log").exists()
    mount = mounted(history.repo)
    check_store(mount.path, history.revisions()["branch=main"])
    with pytest.raises(OSError) as refused:
        (mount.path / "new").write_bytes(b"x")
    assert refused.value.errno == errno.EROFS


def test_cached_chunks_and_snapshots_are_not_requested_again(history, mounted, tmp_path):
    main = history.revisions()["branch=main"]
    with icechunk_server.serving(history.folder) as server:
        for store in ["s3://bucket/repo?branch=main", f"{server.url}/repo?branch=main"]:
            options = [*server.s3] if store.startswith("s3") else []
            options += ["--cache-dir", tmp_path / "cache"]
            # An object is not kept while the folder is busy with others: the next mount keeps it.
            for _ in range(5):
                mount = mounted(store, *options)
                server.asked.clear()
                check_store(mount.path, main)
                check_files(mount.files, history.repo, main)
                wanted = [line for line in server.asked if re.search("chunks/|manifests/|snapshots/", line)]
                if not wanted:
                    break
            assert wanted == []
            assert len(server.asked) < 20, server.asked


def test_an_ordinary_store_takes_no_requests_for_icechunk(sample, mounted):
    """The listing of the root shows whether a store is a repository."""
    with icechunk_server.serving(sample.parent) as server:
        mounted(f"s3://bucket/{sample.name}", *server.s3)
        keys = [line for line in server.asked if "snapshots" in line or "refs" in line or line.endswith("/repo")]
        assert keys == []


def test_missing_files_are_errors(history, mounted):
    shutil.rmtree(history.repo / "chunks")
    mount = mounted(history.repo)
    assert error_of(mount.path / "native/c/0/0") == errno.EIO
    assert error_of(layout.decoded(mount.files, history.repo, "native", "npy")) == errno.EIO
    assert "missing" in (mount.path / ".zarrfs/errors").read_text()
    shutil.rmtree(history.repo / "manifests")
    mount = mounted(history.repo)
    assert (mount.path / "zarr.json").exists()
    assert error_of(layout.decoded(mount.files, history.repo, "native", "npy")) == errno.EIO
    assert "garbage" in (mount.path / ".zarrfs/errors").read_text()
    # Arrays without manifests read as before.
    unwritten = np.load(layout.decoded(mount.files, history.repo, "unwritten", "npy"))
    assert unwritten.tolist() == [7] * 5


def test_a_repository_with_expired_snapshots_is_read(expired, mounted):
    mount = mounted(expired.repo)
    for name, revision in expired.revisions().items():
        kind, _, name = name.partition("=")
        check_store(mount.path / ".zarrfs/refs" / kind / name, revision)
    main = expired.revisions()["branch=main"]
    assert (mount.path / ".zarrfs/log").read_text() == log_of(main)
    removed = expired.expected["repo"]["removed"]
    if removed not in os.listdir(mount.path / ".zarrfs/refs/snapshot"):
        assert not (expired.repo / "snapshots" / removed).exists()
    done = zarrfs("tree", expired.repo, "--snapshot", "ZZZZZZZZZZZZZZZZZZZ0", check=False)
    assert done.returncode == 2 and "ZZZZ" in done.stderr, done


def test_virtual_chunks_need_permission(virtual, mounted):
    mount = mounted(virtual.repo)
    for name in ["local", "s3", "http", "denied", "etag", "modified"]:
        npy = layout.decoded(mount.files, virtual.repo, name, "npy")
        assert error_of(npy) == errno.EACCES, name
        chunk = "c/0" if name == "local" else "c/0/0"
        assert error_of(mount.path / name / chunk) == errno.EACCES, name
        assert len(os.listdir(mount.path / name / "c")) == (3200 if name == "local" else 4)
    errors = (mount.path / ".zarrfs/errors").read_text()
    assert f"--virtual-chunks {LOCAL}" in errors and f"--virtual-chunks {S3}" in errors


def values_of(mount, fixture, name):
    return described(np.load(layout.decoded(mount.files, fixture.repo, name, "npy")))


def test_virtual_chunks_in_local_files(virtual, mounted):
    mount = mounted(virtual.repo, "--virtual-chunks", LOCAL)
    arrays = virtual.expected["arrays"]
    for name in ["local", "packed", "spaced", "modified", *(["relative"] if "relative" in arrays else [])]:
        assert values_of(mount, virtual, name) == arrays[name], name
        assert described(zarr.open_array(mount.path / name, mode="r")[...]) == arrays[name], name
    for name, expected in [("modified_stale", errno.EIO), ("gone", errno.EIO), ("denied", errno.EACCES), ("s3", errno.EACCES)]:
        assert error_of(layout.decoded(mount.files, virtual.repo, name, "npy")) == expected, name
    errors = (mount.path / ".zarrfs/errors").read_text()
    assert "was changed after the reference" in errors and "gone.nc" in errors
    # The options are no secret, and the mount says them.
    assert str(LOCAL) in (mount.path / ".zarrfs/mount.json").read_text()


@pytest.mark.parametrize("virtual", [2], indirect=True)
def test_containers_are_read_once(virtual, mounted):
    """Containers are not read again for each chunk whose location names one."""
    with icechunk_server.serving(virtual.folder) as server:
        mount = mounted("s3://bucket/repo", *server.s3, "--virtual-chunks", LOCAL)
        server.asked.clear()
        assert values_of(mount, virtual, "relative") == virtual.expected["arrays"]["relative"]
        assert len([line for line in server.asked if line.endswith("/repo/repo")]) <= 2, server.asked


def test_virtual_chunks_on_s3(virtual, mounted, tmp_path):
    arrays = virtual.expected["arrays"]
    with icechunk_server.serving(virtual.folder) as server:
        allowed = f"{S3},anon,endpoint={server.url}"
        for store, options in [(virtual.repo, []), ("s3://bucket/repo", server.s3)]:
            mount = mounted(store, *options, "--virtual-chunks", allowed)
            for name in ["s3", "s3_spaced", "etag"]:
                assert values_of(mount, virtual, name) == arrays[name], name
            for name in ["etag_stale", "s3_stale"]:
                npy = layout.decoded(mount.files, virtual.repo, name, "npy")
                assert error_of(npy) == errno.EIO, name
            assert error_of(layout.decoded(mount.files, virtual.repo, "local", "npy")) == errno.EACCES
        # No request for each chunk but its own: the object's version is asked for once.
        mount = mounted(virtual.repo, "--virtual-chunks", allowed)
        server.asked.clear()
        values_of(mount, virtual, "s3")
        assert len([line for line in server.asked if line.startswith("HEAD")]) <= 2, server.asked


@pytest.mark.parametrize("virtual", [2], indirect=True)
def test_virtual_chunks_on_a_web_server(virtual, mounted):
    """icechunk-python 1.1 drops the port of the URL."""
    arrays = virtual.expected["arrays"]
    with icechunk_server.serving(virtual.folder, port=HTTP_PORT, lists=False) as server:
        mount = mounted(virtual.repo, "--virtual-chunks", f"{server.url}/virtual/")
        for name in ["http", "http_spaced"]:
            assert values_of(mount, virtual, name) == arrays[name], name


def test_a_virtual_object_that_changes(virtual, mounted):
    """New bytes are visible, since the reference has no checksum, and no reader gets a mixture."""
    with icechunk_server.serving(virtual.folder) as server:
        options = ["--virtual-chunks", f"{S3},anon,endpoint={server.url}", "--metadata-ttl", "1"]
        mount = mounted(virtual.repo, *options)
        key = mount.path / "s3/c/0/0"
        before = key.read_bytes()
        grid = virtual.folder / "virtual/grid.nc"
        content = grid.read_bytes().replace(before, bytes(len(before)))
        grid.write_bytes(content)
        # A reader that opened the key before may get ESTALE.
        assert mounting.wait_until(lambda: not fails(key) and key.read_bytes() == bytes(len(before)), 5)
