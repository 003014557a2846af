"""Makes the repositories of tests/python/test_icechunk.py and of the unit tests, and what they have to read as.

    .venv/bin/python tests/data/icechunk/make.py virtual WORK     # h5py: the file that virtual chunks are in
    PYTHON tests/data/icechunk/make.py repositories WORK          # icechunk 1.1 (spec 1) or 2.3 (spec 2), and zarr

Each archive NAME.tar.gz beside this file has a folder `repo`, in some a folder `later` (the same repository after more
commits), and `expected.json`: for each revision its commits, its groups, and type, shape and SHA-256 of each array.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent

# Where the tests put the file of virtual chunks, and how they serve it.
LOCAL = "file:///tmp/zarrfs-icechunk"
S3 = "s3://bucket/virtual"
HTTP = "http://127.0.0.1:47813/virtual"

# The time of the file, which checksums name; the tests' server makes the ETag of it.
MODIFIED = 1_700_000_000
ETAG = f'"{MODIFIED * 10**9:x}"'


def make_virtual(work):
    """Makes an HDF5 file with many chunks, and a table of where they are."""
    import h5py

    work.mkdir(parents=True, exist_ok=True)
    cells = np.arange(12_800, dtype="<i2")
    packed = np.arange(600, dtype="<f4").reshape(20, 30) / 8
    with h5py.File(work / "grid.nc", "w") as file:
        file.create_dataset("cells", data=cells, chunks=(4,))
        file.create_dataset("packed", data=packed, chunks=(6, 8), compression="gzip")
    table = {}
    with h5py.File(work / "grid.nc") as file:
        for name, dataset in file.items():
            infos = [dataset.id.get_chunk_info(n) for n in range(dataset.id.get_num_chunks())]
            table[name] = [
                ([at // size for at, size in zip(info.chunk_offset, dataset.chunks)], info.byte_offset, info.size)
                for info in infos
            ]
    (work / "grid.json").write_text(json.dumps(table))
    os.utime(work / "grid.nc", (MODIFIED, MODIFIED))


def config(ic, **members):
    made = ic.RepositoryConfig.default()
    made.inline_chunk_threshold_bytes = 64
    for name, value in members.items():
        setattr(made, name, value)
    return made


class Maker:
    """Makes the repositories that one version of icechunk writes."""

    def __init__(self, work):
        import icechunk
        import zarr

        self.ic, self.zarr, self.work = icechunk, zarr, work
        self.spec = int(icechunk.__version__.split(".")[0])

    def create(self, folder, made_config):
        shutil.rmtree(folder, ignore_errors=True)
        storage = self.ic.local_filesystem_storage(str(folder))
        return self.ic.Repository.create(storage, config=made_config)

    def split(self, sizes):
        ic = self.ic
        condition = ic.ManifestSplitCondition.path_matches(".*/split")
        dimension = ic.ManifestSplitDimCondition.Any()
        splitting = ic.ManifestSplittingConfig.from_dict({condition: {dimension: sizes}})
        return ic.ManifestConfig(splitting=splitting)

    def history(self):
        """Branches, tags, a deleted tag, arrays of all kinds; later more commits, and a branch that is gone."""
        folder = self.work / "history"
        repo = self.create(folder / "repo", config(self.ic, manifest=self.split(3)))
        session = repo.writable_session("main")
        root = self.zarr.group(store=session.store, attributes={"title": "history"})
        self.arrays(root)
        session.commit("first data")
        first = repo.lookup_branch("main")
        repo.create_tag("v1", snapshot_id=first)
        repo.create_tag("gone", snapshot_id=first)
        repo.delete_tag("gone")
        repo.create_branch("dev", snapshot_id=first)
        repo.create_branch("old", snapshot_id=first)
        session = repo.writable_session("dev")
        root = self.zarr.open_group(session.store)
        root["tas"][0, 0] = 99
        root.create_group("new")
        session.commit("change on dev\nwith a second line")
        session = repo.writable_session("main")
        root = self.zarr.open_group(session.store)
        root["split"][9, 9] = -1
        session.commit("change on main")
        if self.spec > 1:
            session = repo.rearrange_session("main")
            session.move("/nested", "/moved")
            session.commit("move a group")
        states = {"repo": self.expected(repo)}
        shutil.rmtree(folder / "later", ignore_errors=True)
        shutil.copytree(folder / "repo", folder / "later")
        repo = self.ic.Repository.open(self.ic.local_filesystem_storage(str(folder / "later")))
        session = repo.writable_session("main")
        root = self.zarr.open_group(session.store)
        root["tas"][...] = root["tas"][...] + 1
        root["sharded"][...] = root["sharded"][...] + 1
        del root["scalar"]
        session.commit("later")
        repo.delete_branch("old")
        states["later"] = self.expected(repo)
        self.pack("history", states, ["repo", "later"])

    def arrays(self, root):
        make = root.create_array
        tas = make("tas", shape=(10, 20), chunks=(4, 7), dtype="f4", fill_value=-1, attributes={"units": "K"},
                   dimension_names=["lat", "lon"])
        tas[:8] = np.arange(160, dtype="f4").reshape(8, 20)
        make("inline", shape=(9,), chunks=(4,), dtype="i2", compressors=None)[...] = np.arange(9)
        make("scalar", shape=(), dtype="f8")[...] = 3.5
        make("text", shape=(2,), chunks=(1,), dtype="U40", compressors=None)[...] = ["not", "inline"]
        make("unwritten", shape=(5,), chunks=(2,), dtype="i2", fill_value=7)
        make("none", shape=(0, 4), chunks=(2, 2), dtype="i2")
        make("split", shape=(10, 10), chunks=(2, 2), dtype="i4")[...] = np.arange(100).reshape(10, 10)
        sharded = make("sharded", shape=(64, 48), chunks=(8, 8), shards=(32, 16), dtype="u2")
        sharded[...] = np.arange(64 * 48).reshape(64, 48) % 1000
        native = make("native", shape=(33, 65), chunks=(16, 16), dtype="i8", compressors=None)
        native[...] = np.arange(33 * 65).reshape(33, 65)
        make("ragged", shape=(1000,), chunks=(100,), dtype="u1", fill_value=9)[250:380] = 1
        cf = root.create_group("cf")
        cf.create_array("y", shape=(5,), chunks=(5,), dtype="f8", dimension_names=["y"])[...] = np.arange(5) / 2
        temp = cf.create_array("temp", shape=(5, 3), chunks=(2, 2), dtype="f4", dimension_names=["y", "x"])
        temp[...] = np.arange(15).reshape(5, 3)
        nested = root.create_group("nested", attributes={"deep": True})
        for name in ["a", "a-b", "a/b", "a0", "a.b", "a/c", "a b", "\u00e9\u4e2d", "\u00e9\u4e2d/x", "a/b/c-d", "A"]:
            nested.require_group(name)
        for name in ["a/b/x", "a-b/x", "a0/x", "a/b-x", "\u00e9\u4e2d/x/\U0001f600"]:
            nested.create_array(name, shape=(3,), chunks=(2,), dtype="i4")[...] = [len(name), 2, 3]

    def expired(self):
        """History that has expired, and snapshots that garbage collection has removed."""
        folder = self.work / "expired"
        repo = self.create(folder / "repo", config(self.ic))
        for number in range(5):
            session = repo.writable_session("main")
            root = self.zarr.group(store=session.store, overwrite=True)
            values = root.create_array("x", shape=(100,), chunks=(50,), dtype="i4", compressors=None)
            values[...] = np.arange(100) + number
            session.commit(f"commit {number}")
            if number == 1:
                repo.create_tag("second", snapshot_id=repo.lookup_branch("main"))
            if number == 2:
                removed, limit = repo.lookup_branch("main"), datetime.now(timezone.utc)
        repo.expire_snapshots(limit)
        repo.garbage_collect(limit)
        expected = self.expected(repo)
        expected["removed"] = removed
        self.pack("expired", {"repo": expected}, ["repo"])

    def weather(self):
        """The repository of the examples in the documents."""
        folder = self.work / "weather"
        repo = self.create(folder / "repo", config(self.ic))
        session = repo.writable_session("main")
        root = self.zarr.group(store=session.store, attributes={"title": "A small forecast"})
        for name, values in [("time", np.arange(4)), ("lat", np.linspace(60, 40, 5)), ("lon", np.linspace(0, 30, 7))]:
            made = root.create_array(name, shape=values.shape, chunks=values.shape, dtype="f8", dimension_names=[name])
            made[...] = values
        names = ["time", "lat", "lon"]
        tas = root.create_array("tas", shape=(4, 5, 7), chunks=(1, 5, 7), dtype="f4", dimension_names=names,
                                attributes={"units": "K"})
        tas[...] = 270 + np.arange(140).reshape(4, 5, 7) / 4
        session.commit("The first run")
        first = repo.lookup_branch("main")
        repo.create_tag("run-1", snapshot_id=first)
        repo.create_branch("bias-corrected", snapshot_id=first)
        session = repo.writable_session("bias-corrected")
        tas = self.zarr.open_group(session.store)["tas"]
        tas[2] = tas[2] - 1
        session.commit("Correct the third step")
        session = repo.writable_session("main")
        tas = self.zarr.open_group(session.store)["tas"]
        tas[3, 0, 0] = 300
        session.commit("The second run")
        self.pack("weather", {"repo": self.expected(repo)}, ["repo"])

    def virtual(self):
        """Virtual chunks, more than 3,000 of which in one manifest: its locations are compressed."""
        ic, folder = self.ic, self.work / "virtual"
        table = json.loads((self.work / "grid.json").read_text())
        made_config = config(ic)
        stores = {
            LOCAL + "/": ic.local_filesystem_store("/tmp/zarrfs-icechunk"),
            S3 + "/": ic.s3_store(region="us-east-1", anonymous=True),
            HTTP + "/": ic.http_store(),
        }
        for prefix, store in stores.items():
            made_config.set_virtual_chunk_container(ic.VirtualChunkContainer(prefix, store))
        if self.spec > 1:
            # One prefix has one container; this one has a name.
            store = ic.local_filesystem_store("/tmp/zarrfs-icechunk/named")
            made_config.set_virtual_chunk_container(ic.VirtualChunkContainer(LOCAL + "/named/", store, name="files"))
        repo = self.create(folder / "repo", made_config)
        session = repo.writable_session("main")
        self.zarr.group(store=session.store)
        before = datetime.fromtimestamp(MODIFIED - 100, timezone.utc)
        at = datetime.fromtimestamp(MODIFIED, timezone.utc)
        arrays = {
            "local": ("cells", LOCAL + "/grid.nc", {}),
            "packed": ("packed", LOCAL + "/grid.nc", {}),
            "spaced": ("packed", LOCAL + "/a%20b%25.nc", {}),
            "modified": ("packed", LOCAL + "/grid.nc", {"last_updated_at_checksum": at}),
            "modified_stale": ("packed", LOCAL + "/grid.nc", {"last_updated_at_checksum": before}),
            "gone": ("packed", LOCAL + "/gone.nc", {}),
            "s3": ("packed", S3 + "/grid.nc", {}),
            "s3_spaced": ("packed", S3 + "/a%20b%25.nc", {}),
            "etag": ("packed", S3 + "/grid.nc", {"etag_checksum": ETAG}),
            "etag_stale": ("packed", S3 + "/grid.nc", {"etag_checksum": '"other"'}),
            "s3_stale": ("packed", S3 + "/grid.nc", {"last_updated_at_checksum": before}),
            "http": ("packed", HTTP + "/grid.nc", {}),
            "http_spaced": ("packed", HTTP + "/a%20b%25.nc", {}),
            "denied": ("packed", "file:///etc/grid.nc", {}),
        }
        if self.spec > 1:
            arrays["relative"] = ("cells", "vcc://files/grid.nc", {})
        for name, (dataset, location, checksum) in arrays.items():
            self.virtual_array(session.store, name, table[dataset], dataset, location, checksum)
        session.commit("virtual chunks")
        values = {
            "cells": described(np.arange(12_800, dtype="<i2")),
            "packed": described(np.arange(600, dtype="<f4").reshape(20, 30) / 8),
        }
        expected = {"arrays": {name: values[dataset] for name, (dataset, _, _) in arrays.items()}}
        shutil.copy2(self.work / "grid.nc", folder / "grid.nc")
        self.pack("virtual", expected, ["repo", "grid.nc"])

    def virtual_array(self, store, name, chunks, dataset, location, checksum):
        if dataset == "cells":
            how = {"shape": (12_800,), "chunks": (4,), "dtype": "i2", "compressors": None}
        else:
            import warnings

            warnings.simplefilter("ignore")
            zlib = self.zarr.codecs.numcodecs.Zlib() if hasattr(self.zarr.codecs, "numcodecs") else None
            if zlib is None:
                from numcodecs.zarr3 import Zlib

                zlib = Zlib(level=4)
            how = {"shape": (20, 30), "chunks": (6, 8), "dtype": "f4", "compressors": [zlib]}
        self.zarr.create_array(store, name=name, **how)
        specs = [
            self.ic.VirtualChunkSpec(list(index), location, offset, length, **checksum)
            for index, offset, length in chunks
        ]
        refused = store.set_virtual_refs(f"/{name}", specs, validate_containers=False)
        assert not refused, refused

    def expected(self, repo):
        revisions = {}
        for branch in sorted(repo.list_branches()):
            revisions[f"branch={branch}"] = self.revision(repo, branch=branch)
        for tag in sorted(repo.list_tags()):
            revisions[f"tag={tag}"] = self.revision(repo, tag=tag)
        return {"revisions": revisions}

    def revision(self, repo, **which):
        session = repo.readonly_session(**which)
        root = self.zarr.open_group(session.store, mode="r")
        members = dict(root.members(max_depth=None))
        arrays = {path: described(np.asarray(node[...])) for path, node in members.items()
                  if isinstance(node, self.zarr.Array)}
        commits = [
            {"id": info.id, "time": info.written_at.strftime("%Y-%m-%dT%H:%M:%SZ"), "message": info.message}
            for info in repo.ancestry(**which)
        ]
        return {
            "snapshot": session.snapshot_id,
            "commits": commits,
            "groups": sorted(path for path in members if path not in arrays),
            "arrays": arrays,
        }

    def pack(self, name, expected, parts):
        folder = self.work / name
        (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False))
        archive = HERE / f"{name}{self.spec}.tar.gz"
        how = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
        command = ["tar", *how, "-czf", archive, "-C", folder, "expected.json", *parts]
        subprocess.run(command, check=True)
        print(archive.name, archive.stat().st_size)


def described(values):
    values = np.ascontiguousarray(values)
    return {
        "dtype": values.dtype.str,
        "shape": list(values.shape),
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
    }


if __name__ == "__main__":
    step, work = sys.argv[1], Path(sys.argv[2])
    if step == "virtual":
        make_virtual(work)
    else:
        maker = Maker(work)
        maker.history()
        maker.expired()
        maker.virtual()
        if maker.spec == 2:
            maker.weather()
