"""Random operations of the store view: plain files and folders wherever they lie, chunks, documents.

What the plain directory refuses, the mount refuses with the same error.
"""

import json
import os
import shutil

import numpy as np

import layout
from both_views import check_node
from both_views import check_place
from plain_store import read_json
from random_drawing import Again
from random_drawing import Drawing
from random_drawing import append
from random_drawing import write_at
from random_drawing import write_mapped
from random_drawing import write_whole


class PlainFiles(Drawing):
    """The store view: files and folders that are no part of Zarr, wherever they lie."""

    def path(self):
        parents = ["", "plain", "plain/n1", "plain/n1/n2"]
        if self.form.name[0] == "v":
            parents += ["a", "g", "g/n3", "a/n1"]
        return os.path.join(self.random.choice(parents), f"n{self.random.randrange(5)}")

    def plain(self, name, act, *paths):
        """Does something to both, and compares the paths."""
        error = self.both(act)
        self.note(name, *paths, error or "")
        for path in paths:
            for place in {path, os.path.dirname(path)}:
                check_place(*(root / place for root in self.roots()))
            self.check_below(path)

    def write_file(self):
        path, bytes_ = self.path(), self.random.randbytes(self.random.randrange(1, 9000))
        way = self.random.choice(["whole", "beside", "at", "append", "mapped"])
        offset = self.random.randrange(12_000)
        acts = {
            "whole": lambda root: write_whole(root / path, bytes_, False),
            "beside": lambda root: write_whole(root / path, bytes_, True),
            "at": lambda root: write_at(root / path, bytes_, offset),
            "append": lambda root: append(root / path, bytes_),
            "mapped": lambda root: write_mapped(root / path, bytes_, offset),
        }
        if way == "mapped":
            place = self.model / path
            if not place.is_file() or offset >= place.stat().st_size:
                raise Again
        self.plain(f"write {way} {len(bytes_)} at {offset}:", acts[way], path)

    def truncate_file(self):
        path, size = self.path(), self.random.randrange(12_000)
        self.plain(f"truncate to {size}:", lambda root: os.truncate(root / path, size), path)

    def rename_file(self):
        old, new = self.path(), self.path()
        self.plain("rename", lambda root: os.rename(root / old, root / new), old, new)

    def link_file(self):
        old, new = self.path(), self.path()

        def link(root):
            os.link(root / old, root / new)
            if root == self.model:
                # A mount makes a second file.
                (root / new).unlink()
                shutil.copy2(root / old, root / new)

        self.plain("link", link, old, new)

    def unlink_file(self):
        path = self.path()
        self.plain("unlink", lambda root: os.unlink(root / path), path)

    def make_folder(self):
        path = self.path()
        self.plain("mkdir", lambda root: os.mkdir(root / path), path)

    def remove_folder(self):
        path = self.path()
        self.plain("rmdir", lambda root: os.rmdir(root / path), path)

    def remove_tree(self):
        path = self.path()
        self.plain("rm -r", lambda root: shutil.rmtree(root / path), path)

    def rename_stored_node(self):
        """Renames a node's folder in the store view, over whatever is there."""
        if self.form.name[0] != "v":
            raise Again
        nodes = self.form.nodes(self.model)
        old = self.pick(path for path in nodes if path)
        new = self.pick([self.path(), self.node_name(), self.pick(nodes)])
        if not new:
            raise Again
        self.plain("rename node", lambda root: os.rename(root / old, root / new), old, new)

    def node_name(self):
        """Draws a path for a node."""
        group = self.pick(self.form.groups(self.model))
        return os.path.join(group, self.random.choice(["x", "y", "zz", "n2"]))

    def copy_pristine(self):
        """Copies an array of the store as it was at first, as `cp -r` does."""
        old = self.pick(self.form.arrays(self.pristine))
        new = self.node_name()
        if any((self.model / home).exists() for home in self.form.homes(new)):
            raise Again
        for root in self.roots():
            self.form.copy(self.pristine, root, old, new)
        self.note("copy", old, new)
        self.check(new)


class StoredArrays(PlainFiles):
    """The store view: chunks and documents of arrays."""

    def chunk_of(self, path, array):
        """Draws a chunk and new bytes for it."""
        index = self.pick(layout.chunk_indices(array.shape, array.chunks))
        if array.is_plain:
            size = int(np.prod(array.chunks)) * array.dtype.itemsize
            return index, self.random.randbytes(size)
        keys = (self.model / array.key(i) for i in layout.chunk_indices(array.shape, array.chunks))
        return index, self.pick(key for key in keys if key.exists()).read_bytes()

    def write_chunk(self):
        path, array = self.array()
        index, bytes_ = self.chunk_of(path, array)
        beside = self.chance(0.5)
        self.note("write chunk", path, index, "beside" if beside else "in place")
        for root in self.roots():
            place = root / array.key(index)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, bytes_, beside)
        self.check(path)

    def patch_chunk(self):
        """Writes a part of an uncompressed chunk."""
        path, array = self.array()
        index, bytes_ = self.chunk_of(path, array)
        key = array.key(index)
        if not array.is_plain or not (self.model / key).exists():
            raise Again
        offset = self.random.randrange(len(bytes_))
        part = bytes_[: self.random.randrange(1, len(bytes_) - offset + 1)]
        act = self.random.choice([write_at, write_mapped])
        self.note("patch chunk", path, index, act.__name__, len(part), "at", offset)
        self.both(lambda root: act(root / key, part, offset))
        check_place(*(root / key for root in self.roots()))
        self.check(path)

    def remove_chunk(self):
        path, array = self.array()
        index, _ = self.chunk_of(path, array)
        error = self.both(lambda root: os.unlink(root / array.key(index)))
        self.note("unlink chunk", path, index, error or "")
        self.check(path)

    def rename_chunk(self):
        path, array = self.array()
        indices = list(layout.chunk_indices(array.shape, array.chunks))
        old, new = array.key(self.pick(indices)), array.key(self.pick(indices))
        for root in self.roots():
            (root / new).parent.mkdir(parents=True, exist_ok=True)
            (root / old).parent.mkdir(parents=True, exist_ok=True)
        error = self.both(lambda root: os.rename(root / old, root / new))
        self.note("rename chunk", old, new, error or "")
        self.check(path)

    def write_by_library(self):
        path, array = self.array()
        box = self.box(array.shape)
        values = self.values(array, np.empty(array.shape)[box].shape)
        self.note("write by library", path, box)
        for root in self.roots():
            self.form.open(root, path).write(box, values)
        self.check(path)

    def box(self, shape):
        """Draws a box of an array."""
        ends = [sorted(self.random.sample(range(length + 1), 2)) for length in shape]
        return tuple(slice(*pair) for pair in ends)

    def values(self, array, shape):
        size = int(np.prod(shape)) * array.dtype.itemsize
        return np.frombuffer(self.random.randbytes(size), array.dtype).reshape(shape)

    def resize_by_library(self):
        path, array = self.array()
        shape = self.shape(array)
        self.note("resize by library", path, array.shape, "to", shape)
        for root in self.roots():
            self.form.open(root, path).resize(shape)
        self.check(path)

    def write_stored_shape(self):
        path, array = self.array()
        self.store_shape(path, self.shape(array))
        self.check(path)

    def store_shape(self, path, shape):
        """Writes the document with another shape: no chunk goes."""
        document, beside = self.form.document(path), self.chance(0.5)
        self.note("store shape", path, shape, "beside" if beside else "in place")
        for root in self.roots():
            members = {**read_json(root / document), "shape": list(shape)}
            write_whole(root / document, json.dumps(members).encode(), beside)

    def write_stored_attributes(self, path=None):
        path = self.pick(self.form.nodes(self.model)) if path is None else path
        if not path and not self.form.root_has_attributes:
            raise Again
        attributes = self.attributes()
        self.note("write stored attributes", path, attributes)
        for root in self.roots():
            self.form.set_attributes(root, path, attributes)
        check_node(self.subject, self.model, self.form, path)
