"""A store mounted with --cow, by both of its views, and how it is compared with a plain directory.

Keys are compared by their bytes. Where stored bytes may differ lawfully, what they mean is compared: documents of Zarr as
JSON (man/zarrfs-files.7 promises what they say, not how they are spelled), chunks of compressed arrays and shards by what
zarr-python reads. Folders below an array are not compared, since no key holds an empty one.
"""

import json
import os
import shutil
import stat

import numpy as np

import layout
from mounting import Daemon
from mounting import zarrfs
from plain_store import boxes

# Which view stands at the mountpoint; the other one is in the control directory.
WAYS = ["store", "files"]


class Subject:
    """The mount. `store` and `files` are the places of its views."""

    def __init__(self, store, upper, way):
        self.lower, self.upper = store, upper
        self.mount(way)

    def mount(self, way):
        options = ["--cow", self.upper, "--list", "raw,chunks"]
        if way == "files":
            options += ["--view", "files"]
        self.daemon = Daemon(self.lower, *options).__enter__()
        root = self.daemon.path
        self.store = root / ".zarrfs/store" if way == "files" else root
        self.files = root if way == "files" else root / ".zarrfs/files"

    def unmount(self):
        self.daemon.__exit__()

    def kill(self):
        """Kills the daemon as nobody expects it; its mount is taken away."""
        self.daemon.kill()

    def complaints(self):
        return self.daemon.complaints()[-3000:]

    def discard(self, *path):
        """Throws changes away; returns whether there were some."""
        done = zarrfs("discard", self.daemon.path, *(path or ["--all"]), check=False)
        assert done.returncode == 0 or "nothing was changed" in done.stderr, done.stderr
        return done.returncode == 0

    def commit(self):
        commit(self.daemon.path)

    def decoded(self, path, suffix):
        return layout.decoded(self.files, self.lower, path, suffix)


def commit(place):
    """Brings all changes into the store."""
    done = zarrfs("commit", place, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# What keys mean.


def is_document(name):
    documents = ("zarr.json", ".zarray", ".zgroup", ".zattrs")
    return name in documents or name.endswith((".array.json", ".group.json"))


# Members of documents that may as well be absent.
DEFAULTS = [
    ("attributes", {}),
    ("storage_transformers", []),
    ("consolidated_metadata", None),
    ("dimension_separator", "."),
]


def meaning(bytes_):
    """Returns what a document says, without what says nothing."""
    members = json.loads(bytes_)
    said = {name: value for name, value in members.items() if (name, value) not in DEFAULTS}
    if "codecs" in said and "node_type" not in said:
        # In the draft of 2022 little-endian is what is meant without a codec, too.
        little = {"endian": "little"}
        said["codecs"] = [codec for codec in said["codecs"] if codec.get("configuration") != little]
    return said


def keys(folder, form):
    """Returns what each key means by its path, and the folders that are not below an array.

    A chunk that is not compared by its bytes is `None`, and a v2 node's attributes that are empty are absent.
    """
    veiled, shut = [], []
    for path, kind in form.nodes(folder, hidden=True).items():
        if kind == "array":
            veiled += [] if form.open(folder, path).is_plain else [path]
            shut.append(path)
    data = getattr(form, "data", "")
    found, folders = {}, set()
    for parent, names, files in os.walk(folder):
        parent = os.path.relpath(parent, folder).removeprefix(".")
        if ".zarrfs" in names:
            raise AssertionError("the control directory is listed")
        for name in files:
            place = os.path.join(parent, name)
            bytes_ = (folder / place).read_bytes()
            if is_document(name):
                if name != ".zattrs" or json.loads(bytes_):
                    found[place] = meaning(bytes_)
            elif any(is_chunk(place, os.path.join(data, array)) for array in veiled):
                found[place] = None
            else:
                found[place] = bytes_
        is_shut = data and parent.startswith(("meta", "data"))
        if not is_shut and not any(is_within(parent, array) for array in shut):
            folders.add(parent)
    return found, folders


def is_within(path, folder):
    return not folder or path == folder or path.startswith(f"{folder}/")


def is_chunk(place, array):
    """Whether a key of an array's folder has the name of a chunk."""
    rest = os.path.relpath(place, array)
    return is_within(place, array) and rest[0] in "c0123456789"


def check_keys(found, wanted, form):
    """Compares two stores as directories."""
    (keys_found, folders_found), (keys_wanted, folders_wanted) = keys(found, form), keys(wanted, form)
    check_names(keys_found.keys(), keys_wanted.keys())
    for place, value in keys_wanted.items():
        assert keys_found[place] == value, difference(place, keys_found[place], value)
    check_names(folders_found, folders_wanted)


def check_names(found, wanted):
    assert found == wanted, f"not expected: {found - wanted}, missing: {wanted - found}"


def difference(place, found, wanted):
    """Says where two keys differ."""
    if not isinstance(found, bytes):
        return f"{place}: found {found}, expected {wanted}"
    at = [n for n, (one, other) in enumerate(zip(found, wanted)) if one != other]
    return f"{place}: {len(found)} and {len(wanted)} bytes, the first that differ {at[:5]}"


def check_place(found, wanted):
    """Compares one path of the store view with the plain directory's."""
    exists = os.path.lexists(wanted)
    assert os.path.lexists(found) == exists, f"{found}: expected to exist: {exists}"
    if not exists:
        return
    one, other = os.lstat(found), os.lstat(wanted)
    assert stat.S_IFMT(one.st_mode) == stat.S_IFMT(other.st_mode), found
    if stat.S_ISDIR(other.st_mode):
        names = [sorted(set(os.listdir(place)) - {".zattrs"}) for place in (found, wanted)]
        assert names[0] == names[1], f"{found}: {names[0]}, expected {names[1]}"
    else:
        assert one.st_size == other.st_size, f"{found}: size {one.st_size}, not {other.st_size}"
        if not is_document(found.name):
            same = found.read_bytes() == wanted.read_bytes()
            assert same, difference(found, found.read_bytes(), wanted.read_bytes())


# What decoded files hold.


def same(found, wanted, what):
    """Compares elements by their bits."""
    assert found.shape == wanted.shape, f"{what}: shape {found.shape}, expected {wanted.shape}"
    assert found.dtype == wanted.dtype, f"{what}: {found.dtype}, expected {wanted.dtype}"
    if found.tobytes() != wanted.tobytes():
        bits = [np.ascontiguousarray(a).reshape(-1).view(f"V{a.dtype.itemsize}") for a in (found, wanted)]
        at = np.flatnonzero(bits[0] != bits[1])
        raise AssertionError(
            f"{what}: {len(at)} elements differ, the first {at[:8]}: "
            f"{found.reshape(-1)[at[:4]]}, expected {wanted.reshape(-1)[at[:4]]}"
        )


def check_array(subject, model, form, path, is_read_stored=True):
    """Compares an array through all that shows it; in the store view it is read as one that is not mounted."""
    array = form.open(model, path)
    wanted = array.read()
    npy = np.load(subject.decoded(path, "npy"), mmap_mode="r" if wanted.size else None)
    same(np.asarray(npy), wanted, f"{path}.npy")
    raw = np.frombuffer(subject.decoded(path, "raw").read_bytes(), array.dtype)
    same(raw.reshape(wanted.shape), wanted, f"{path}.raw")
    if is_read_stored:
        same(form.open(subject.store, path).read(), wanted, f"{path} in the store view")
    check_node(subject, model, form, path)


def check_chunks(subject, model, form, path):
    """Compares the files of all chunks of an array; those that are stored are listed."""
    array = form.open(model, path)
    wanted, folder = array.read(), subject.files / path / "chunks"
    names = set()
    for index, box in boxes(array.shape, array.chunks):
        name = layout.chunk_name(index)
        if (model / array.key(index)).exists():
            names |= {f"{name}.npy", f"{name}.raw"}
        part = np.ascontiguousarray(wanted[box])
        same(np.load(folder / f"{name}.npy"), part.reshape(wanted[box].shape), f"{path} {name}")
        assert (folder / f"{name}.raw").read_bytes() == part.tobytes(), f"{path} {name}.raw"
    assert set(os.listdir(folder)) == names, path


def check_node(subject, model, form, path):
    """Compares what the files view shows of a node beside its elements."""
    folder = subject.files / path
    attributes = form.attributes(model, path)
    assert json.loads((folder / "attributes.json").read_bytes()) == attributes, path
    document = json.loads((folder / "metadata.json").read_bytes())
    assert document.get("attributes", {}) == attributes, path
    if document["node_type"] == "array":
        assert tuple(document["shape"]) == form.open(model, path).shape, path


def check_all(subject, model, form):
    """Compares everything that both views show."""
    check_keys(subject.store, model, form)
    nodes = form.nodes(model)
    for path, kind in nodes.items():
        names = {"metadata.json", "attributes.json"}
        if kind == "array":
            name = os.path.basename(path)
            names |= {f"{name}.npy", f"{name}.raw", "chunks"}
            check_array(subject, model, form, path)
            check_chunks(subject, model, form, path)
        else:
            names |= {os.path.basename(node) for node in nodes if node and os.path.dirname(node) == path}
            check_node(subject, model, form, path)
        # The elements that were looked up are listed with their headers.
        headers = {f"{os.path.basename(path)}.{ending}" for ending in ("hdr", "mhd", "nhdr")}
        shown = set(os.listdir(subject.files / path)) - headers
        assert shown == names, f"{path}: lists {shown}, expected {names}"


def restore(model, lower, path):
    """Brings a path of the model back to what the store has."""
    place, source = model / path, lower / path
    if place.is_dir():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    if source.is_dir():
        shutil.copytree(source, place)
    elif source.exists():
        shutil.copyfile(source, place)
