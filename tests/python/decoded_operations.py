"""Random operations of the files view: elements written, attributes replaced, and all else refused."""

import json
import os
from pathlib import Path

import numpy as np

import layout
from both_views import check_node
from plain_store import boxes
from random_drawing import Again
from random_drawing import attempt
from random_drawing import opened
from stored_operations import StoredArrays

PAGE = 4096


class DecodedArrays(StoredArrays):
    """The files view: elements."""

    def file_of(self, path, array):
        """Draws a decoded file that is written; returns its path, its header's length, and the array's shape and type."""
        place = self.subject.decoded(path, self.random.choice(["raw", "npy"]))
        size = int(np.prod(array.shape)) * array.dtype.itemsize
        return place, place.stat().st_size - size, array.shape, array.dtype

    def assign(self, path, ranges):
        """Does to the model what writing ranges, offset and bytes, of the flat array does."""
        array = self.form.open(self.model, path)
        whole = array.read()
        flat, size = bytearray(whole.tobytes()), array.dtype.itemsize
        written = np.zeros(whole.size, bool)
        for start, bytes_ in ranges:
            flat[start : start + len(bytes_)] = bytes_
            written[start // size : -(-(start + len(bytes_)) // size)] = True
        mask = written.reshape(array.shape)
        array.write_some(mask, np.frombuffer(flat, array.dtype).reshape(array.shape))
        for index, chunk in boxes(array.shape, array.chunks):
            if mask[chunk].any() and mask[chunk].shape != array.chunks:
                self.cut.setdefault(path, set()).add(array.key(index))

    def write_range(self, file, path, held):
        """Writes a random range by a descriptor; returns the error."""
        place, header, shape, dtype = held
        size = int(np.prod(shape)) * dtype.itemsize
        start = self.random.randrange(size)
        length = self.random.choice([1, 7, dtype.itemsize, 500, size])
        bytes_ = self.random.randbytes(min(length, size - start))
        if self.chance(0.2):
            start, bytes_ = 0, self.random.randbytes(size)
        self.note("write range", place.name, "of", path, len(bytes_), "at", start)
        error = attempt(os.pwrite, file, bytes_, header + start)
        if not error:
            self.assign(path, [(start, bytes_)])
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
        self.assign(path, list(runs(pages, header, after)))
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
        self.be_refused_nodes(path, array)
        self.check(path)

    def be_refused_nodes(self, path, array):
        """Does what the store view is for."""
        folder = self.subject.files / path
        index, _ = self.pick(boxes(array.shape, array.chunks))
        chunk = folder / "chunks" / f"{layout.chunk_name(index)}.{self.random.choice(['raw', 'npy'])}"
        for place in (chunk, folder / "metadata.json"):
            assert place.stat().st_mode & 0o222 == 0
            assert attempt(os.open, place, os.O_RDWR) == "EACCES"
        for place in (chunk, folder / "metadata.json", self.subject.decoded(path, "npy")):
            assert attempt(os.unlink, place) == "EPERM"
            assert attempt(os.rename, place, place.with_name("other")) == "EPERM"
        for place in (folder, folder / "chunks"):
            assert attempt(os.rmdir, place) == "EPERM"
            assert attempt(os.rename, place, self.subject.files / "other") == "EPERM"
        assert attempt(os.mkdir, self.subject.files / "new") == "EPERM"


class DecodedNodes(DecodedArrays):
    """The files view: attributes."""

    def is_described(self, path, kind):
        """Whether a document describes a node: one that has none is not edited."""
        return kind == "array" or (self.model / self.form.document(path, "group")).exists()

    def write_attributes(self):
        """Replaces attributes.json: in place or by a file beside it; what does not parse is refused."""
        path = self.pick(path for path, kind in self.form.nodes(self.model).items() if self.is_described(path, kind))
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
