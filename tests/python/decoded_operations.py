"""Random operations of the files view: elements written, documents replaced, groups and arrays made, removed, renamed."""

import json
import os
from pathlib import Path

import numpy as np

import both_views
import layout
from both_views import check_node
from both_views import is_within
from plain_store import boxes
from plain_store import read_json
from random_drawing import Again
from random_drawing import attempt
from random_drawing import opened
from stored_operations import StoredArrays

PAGE = 4096

# How many nodes there may be before no more are made.
MANY = 18


class DecodedArrays(StoredArrays):
    """The files view: elements."""

    def file_of(self, path, array):
        """Draws a decoded file; returns its path, its header's length, the box it holds, and its type."""
        suffix = self.random.choice(["raw", "npy"])
        box = tuple(slice(0, length) for length in array.shape)
        place = self.subject.decoded(path, suffix)
        if self.chance(0.4):
            index, box = self.pick(boxes(array.shape, array.chunks))
            place = self.subject.files / path / "chunks" / f"{layout.chunk_name(index)}.{suffix}"
        size = int(np.prod([part.stop - part.start for part in box])) * array.dtype.itemsize
        return place, place.stat().st_size - size, box, array.dtype

    def assign(self, path, box, ranges):
        """Does to the model what writing ranges, offset and bytes, of the flat file of a box does."""
        array = self.form.open(self.model, path)
        whole = array.read()
        part = np.array(whole[box])
        flat, size = bytearray(part.tobytes()), array.dtype.itemsize
        written = np.zeros(part.size, bool)
        for start, bytes_ in ranges:
            flat[start : start + len(bytes_)] = bytes_
            written[start // size : -(-(start + len(bytes_)) // size)] = True
        whole[box] = np.frombuffer(flat, array.dtype).reshape(part.shape)
        mask = np.zeros(array.shape, bool)
        mask[box] = written.reshape(part.shape)
        array.write_some(mask, whole)
        for index, chunk in boxes(array.shape, array.chunks):
            if mask[chunk].any() and mask[chunk].shape != array.chunks:
                self.cut.setdefault(path, set()).add(array.key(index))

    def write_range(self, file, path, held):
        """Writes a random range by a descriptor; returns the error."""
        place, header, box, dtype = held
        size = int(np.prod([part.stop - part.start for part in box])) * dtype.itemsize
        start = self.random.randrange(size)
        length = self.random.choice([1, 7, dtype.itemsize, 500, size])
        bytes_ = self.random.randbytes(min(length, size - start))
        if self.chance(0.2):
            start, bytes_ = 0, self.random.randbytes(size)
        self.note("write range", place.name, "of", path, len(bytes_), "at", start)
        error = attempt(os.pwrite, file, bytes_, header + start)
        if not error:
            self.assign(path, box, [(start, bytes_)])
        return error

    def write_decoded(self):
        path, array = self.array()
        held = self.file_of(path, array)
        with opened(held[0]) as file:
            for _ in range(self.random.randrange(1, 4)):
                assert self.write_range(file, path, held) is None
                if self.chance(0.2):
                    os.fsync(file)
        self.check(path)

    def write_mapped(self):
        """Writes rows or a box of NAME.npy through a map: the kernel writes whole pages."""
        path, array = self.array()
        box = self.box(array.shape)
        if self.chance(0.4):
            box = box[:1]
        place = self.subject.decoded(path, "npy")
        self.note("write mapped", path, box)
        mapped = np.load(place, mmap_mode="r+")
        before = mapped.tobytes()
        values = self.values(array, mapped[box].shape)
        mapped[box] = values
        mapped.flush()
        after, header = mapped.tobytes(), mapped.offset
        touched = np.zeros(array.shape, bool)
        touched[box] = True
        places = np.flatnonzero(touched) * array.dtype.itemsize + header
        last = places + array.dtype.itemsize - 1
        pages = sorted(set(places // PAGE) | set(last // PAGE))
        del mapped
        assert len(before) == len(after)
        self.assign(path, tuple(map(slice, array.shape)), list(runs(pages, header, after)))
        self.check(path)

    def unlink_decoded_chunk(self):
        path, array = self.array()
        index, _ = self.pick(boxes(array.shape, array.chunks))
        name = f"{layout.chunk_name(index)}.{self.random.choice(['raw', 'npy'])}"
        self.note("unlink", path, name)
        os.unlink(self.subject.files / path / "chunks" / name)
        (self.model / array.key(index)).unlink(missing_ok=True)
        self.check(path)

    def be_refused(self):
        """Does what the files view refuses."""
        path, array = self.array()
        place, *_ = self.file_of(path, array)
        size = place.stat().st_size
        self.note("be refused", place)
        assert attempt(os.truncate, place, size + self.random.choice([-1, 1])) == "EINVAL"
        with opened(place) as file:
            assert attempt(os.pwrite, file, b"xy", size - self.random.randrange(2)) == "EFBIG"
        with opened(self.subject.decoded(path, "npy")) as file:
            assert attempt(os.pwrite, file, b"x", self.random.randrange(8)) is not None
        assert attempt(os.rename, place, place.with_name("other")) == "EPERM"
        self.check(path)


class DecodedNodes(DecodedArrays):
    """The files view: documents, groups and arrays."""

    def write_attributes(self):
        """Replaces attributes.json: in place or by a file beside it; what does not parse is refused."""
        path = self.pick(self.form.nodes(self.model))
        if not path and not self.form.root_has_attributes:
            raise Again
        attributes, place = self.attributes(), self.subject.files / path / "attributes.json"
        name = self.random.choice(["", "attributes.json.tmp", ".attributes.json.swp", "4913"])
        wrong = self.chance(0.2)
        text = self.random.choice(["", "{", "[1]", '{"a": }']) if wrong else json.dumps(attributes)
        self.note("write attributes", path, text, "by" if name else "in place", name)
        error = attempt(replace_text, place, name, text)
        assert error == ("EINVAL" if wrong else None), error
        if name and wrong:
            assert place.with_name(name).read_text() == text
            os.unlink(place.with_name(name))
        if not wrong and (attributes or self.form.attributes(self.model, path)):
            self.form.set_attributes(self.model, path, attributes)
        check_node(self.subject, self.model, self.form, path)

    def write_metadata(self):
        """Writes zarr.json of the files view with another shape, or what it cannot be."""
        path, array = self.array()
        place = self.subject.files / path / "zarr.json"
        document = read_json(place)
        if self.chance(0.2):
            wrong = self.random.choice([{"data_type": "int8"}, {"shape": [1] * 9}, {"fill_value": 77}])
            self.note("write wrong metadata", path, wrong)
            assert attempt(replace_text, place, "", json.dumps({**document, **wrong})) == "EINVAL"
        else:
            shape, attributes = self.shape(array), self.attributes()
            self.note("write metadata", path, array.shape, "to", shape, attributes)
            document.update(shape=list(shape), attributes=attributes)
            place.write_text(json.dumps(document))
            array.resize(shape)
            self.form.set_attributes(self.model, path, attributes)
        self.check(path)

    def make_group(self):
        path = self.pick([self.node_name(), self.pick(self.form.nodes(self.model)) or "g"])
        nodes = self.form.nodes(self.model)
        self.note("make group", path)
        error = attempt(os.mkdir, self.subject.files / path)
        if path in nodes:
            assert error == "EEXIST", error
        elif self.hides(path):
            assert error in ("EEXIST", "ENOTDIR"), error
        else:
            assert error is None, error
            self.form.make_group(self.model, path)
            check_node(self.subject, self.model, self.form, path)

    def hides(self, path):
        """Whether there is a file that the files view does not show."""
        return self.form.name[0] == "v" and (self.model / path).exists()

    def is_described(self, path):
        return (self.model / self.form.document(path, "group")).exists()

    def make_array(self):
        nodes = self.form.nodes(self.model)
        path = self.node_name()
        if path in nodes or self.hides(path) or len(nodes) > MANY:
            raise Again
        metadata = self.metadata()
        self.note("make array", path, metadata)
        os.mkdir(self.subject.files / path)
        (self.subject.files / path / "zarr.json").write_text(json.dumps(metadata))
        self.form.make_group(self.model, path)
        self.form.make_array(self.model, path, metadata)
        self.check(path)
        array = self.form.open(self.model, path)
        held = self.file_of(path, array)
        with opened(held[0]) as file:
            assert self.write_range(file, path, held) is None
        self.check(path)

    def metadata(self):
        """Draws metadata of final v3 that every dialect has words for."""
        rank = self.random.randrange(1, 4)
        shape = [self.random.randrange(1, 12) for _ in range(rank)]
        chunk = [self.random.randrange(1, 6) for _ in range(rank)]
        codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
        dtype = self.random.choice(["int32", "float64", "uint8"])
        if dtype == "uint8":
            codecs = [{"name": "bytes"}]
        if self.chance(0.5):
            codecs.append({"name": "gzip", "configuration": {"level": 3}})
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.random.randrange(3),
            "codecs": codecs,
            "attributes": self.attributes(),
        }

    def remove_node(self):
        path = self.pick(path for path in self.form.nodes(self.model) if path)
        if len(self.form.arrays(self.model)) < 5 and not self.chance(0.1):
            raise Again
        self.note("rm -r node", path)
        wanted = self.forget(path)
        assert remove_all(self.subject.files / path) == wanted, f"removed: {not wanted}"
        assert (self.subject.files / path).exists() != wanted
        self.check_below(os.path.dirname(path))

    def forget(self, path):
        """Removes a node of the model, but not what no listing of the files view shows; returns whether it is gone."""
        nodes = self.form.nodes(self.model)
        below = [node for node in nodes if node and os.path.dirname(node) == path]
        if nodes[path] == "array":
            self.form.remove(self.model, path)
            return True
        gone = [self.forget(child) for child in below]
        if not all(gone) or self.foreign(path):
            return False
        self.form.remove(self.model, path)
        return True

    def foreign(self, path):
        """Whether a group's folder holds files that are no part of Zarr."""
        if self.form.name[0] != "v":
            return False
        entries = os.scandir(self.model / path)
        return any(entry.is_file() and not both_views.is_document(entry.name) for entry in entries)

    def move_node(self):
        nodes = self.form.nodes(self.model)
        old = self.pick(path for path in nodes if path)
        new = self.pick([self.node_name(), self.node_name(), self.pick(nodes)])
        if not new:
            raise Again
        self.note("mv node", old, new)
        error = attempt(os.rename, self.subject.files / old, self.subject.files / new)
        wanted = self.refusal(nodes, old, new)
        assert error in wanted, f"{error}, expected one of {wanted}"
        if error is None and old != new:
            if new in nodes:
                self.form.remove(self.model, new)
            self.form.move(self.model, old, new)
            self.check_below(new)
        assert error or old == new or not (self.subject.files / old).exists()
        self.check_below(os.path.dirname(old))

    def refusal(self, nodes, old, new):
        """Returns the errors that a rename may end with."""
        if old == new:
            return [None]
        if is_within(new, old):
            return ["EINVAL"]
        if is_within(old, new):
            return ["ENOTEMPTY"]
        if nodes.get(os.path.dirname(new)) == "array":
            return ["ENOTDIR", "EPERM"]
        if new not in nodes:
            return ["ENOTDIR", "EEXIST"] if self.hides(new) else [None]
        holds = nodes[new] == "array" or self.form.attributes(self.model, new) or self.foreign(new)
        holds = holds or any(os.path.dirname(node) == new for node in nodes)
        return ["ENOTEMPTY"] if holds else [None]


def runs(pages, header, data):
    """Returns what the kernel writes of changed pages that lie side by side, as offsets in the data and bytes."""
    start = None
    for page, following in zip(pages, [*pages[1:], None]):
        start = page if start is None else start
        if following != page + 1:
            begin, end = max(start * PAGE - header, 0), (page + 1) * PAGE - header
            yield begin, data[begin:end]
            start = None


def replace_text(place, name, text):
    """Writes a file in place, or as `name` beside it, which then gets its name."""
    new = place.with_name(name) if name else place
    # Closed by itself, since Python's own close says no error twice.
    file = os.open(new, os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if name else 0))
    try:
        os.write(file, text[: len(text) // 2].encode())
        os.write(file, text[len(text) // 2 :].encode())
    finally:
        os.close(file)
    if name:
        os.replace(new, place)


def remove_all(folder):
    """Removes a folder as `rm -r` does: on, when something stays; returns whether it is gone."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            remove_all(entry.path)
        else:
            os.unlink(entry.path)
    error = attempt(os.rmdir, folder)
    assert error in (None, "ENOTEMPTY"), error
    return error is None
