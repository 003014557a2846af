"""Stores of the drafts of October 2020 and May 2022 as plain directories, with arrays that this file reads and writes
itself, since zarr-python cannot: every chunk whole, plain or gzipped, in either order.
"""

import gzip
import os

import numpy as np

import layout
from plain_store import PLAIN_CODECS
from plain_store import Form
from plain_store import boxes
from plain_store import read_json
from plain_store import values_for
from plain_store import write_json


class DraftArray:
    """An array of a draft: every chunk read and written whole."""

    def __init__(self, form, folder, path):
        self.form, self.folder, self.path = form, folder, path
        self.document = folder / form.document(path)
        members = read_json(self.document)
        self.shape = tuple(members["shape"])
        grid = members["chunk_grid"]
        self.chunks, self.separator = tuple(grid["chunk_shape"]), grid["separator"]
        self.stored, self.is_plain = form.coding(members)
        self.order, self.fill = members["chunk_memory_layout"], members["fill_value"]
        self.dtype = self.stored.newbyteorder("<")

    def key(self, index):
        name = "c" + self.separator.join(map(str, index))
        return os.path.join(self.form.data, self.path, name)

    def chunk(self, index):
        """Returns a whole chunk, beyond the edge too."""
        place = self.folder / self.key(index)
        if not place.exists():
            return np.full(self.chunks, self.fill, self.dtype)
        bytes_ = place.read_bytes()
        flat = np.frombuffer(bytes_ if self.is_plain else gzip.decompress(bytes_), self.stored)
        return flat.reshape(self.chunks, order=self.order).astype(self.dtype)

    def put(self, index, chunk):
        bytes_ = chunk.astype(self.stored).tobytes(order=self.order)
        place = self.folder / self.key(index)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes_ if self.is_plain else gzip.compress(bytes_, 1))

    def read(self):
        whole = np.empty(self.shape, self.dtype)
        for index, box in boxes(self.shape, self.chunks):
            part = whole[box]
            part[...] = self.chunk(index)[tuple(map(slice, part.shape))]
        return whole

    def write(self, box, values):
        whole, mask = self.read(), np.zeros(self.shape, bool)
        whole[box], mask[box] = values, True
        self.write_some(mask, whole)

    def write_some(self, mask, whole):
        for index, box in boxes(self.shape, self.chunks):
            if mask[box].any():
                chunk = self.chunk(index).copy()
                chunk[tuple(map(slice, mask[box].shape))][mask[box]] = whole[box][mask[box]]
                self.put(index, chunk)

    def resize(self, shape):
        kept = set(layout.chunk_indices(shape, self.chunks))
        for index in layout.chunk_indices(self.shape, self.chunks):
            if index not in kept:
                (self.folder / self.key(index)).unlink(missing_ok=True)
        write_json(self.document, {**read_json(self.document), "shape": list(shape)})


class Draft(Form):
    """The drafts of October 2020 and May 2022."""

    # Where neither draft's examples have a document, there is none in the store that is made.
    root_has_attributes = False

    def __init__(self, year):
        self.year, self.name = year, f"draft{year}"
        self.meta, self.data = ("meta/root", "data/root") if year == 2020 else ("meta", "data")

    def open(self, folder, path):
        return DraftArray(self, folder, path)

    def homes(self, path):
        meta = os.path.join(self.meta, path)
        return [f"{meta}.array.json", f"{meta}.group.json", meta, os.path.join(self.data, path)]

    def document(self, path, kind="array"):
        return os.path.join(self.meta, f"{path}.{kind}.json")

    def nodes(self, folder, hidden=False):
        found, meta = {"": "group"}, folder / self.meta
        for place in sorted(meta.rglob("*.*.json")):
            path, kind, _ = str(place.relative_to(meta)).rsplit(".", 2)
            found[path] = kind
        return found

    def coding(self, members):
        """Returns the type as it is stored, and whether it is stored as it is."""
        if self.year == 2020:
            return np.dtype(members["data_type"]), "compressor" not in members
        names = [codec["type"].split("/")[-2] for codec in members["codecs"]]
        endian = [codec for codec in members["codecs"] if "endian" in codec["type"]]
        order = endian[0]["configuration"]["endian"] if endian else "little"
        dtype = np.dtype(members["data_type"]).newbyteorder(order)
        return dtype, set(names) <= PLAIN_CODECS

    def attributes(self, folder, path):
        for place in self.homes(path)[:2]:
            if (folder / place).exists():
                return read_json(folder / place).get("attributes", {})
        return {}

    def set_attributes(self, folder, path, attributes):
        for place in self.homes(path)[:2]:
            if (folder / place).exists():
                write_json(folder / place, {**read_json(folder / place), "attributes": attributes})

    def make_group(self, folder, path):
        write_json(folder / self.document(path, "group"), {"attributes": {}, "extensions": []})

    def make_array(self, folder, path, metadata):
        os.unlink(folder / self.document(path, "group"))
        grid = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        gzipped = any(codec["name"] == "gzip" for codec in metadata["codecs"])
        dtype = np.dtype(metadata["data_type"])
        members = self.members(metadata["shape"], dtype, grid, ("C", gzipped, metadata["fill_value"]))
        members["attributes"] = metadata["attributes"]
        write_json(folder / self.document(path), members)

    def members(self, shape, dtype, chunks, how):
        """Returns the document of an array."""
        order, gzipped, fill = how
        grid = {"type": "regular", "chunk_shape": list(chunks), "separator": "/"}
        common = {"shape": list(shape), "chunk_grid": grid, "chunk_memory_layout": order}
        common.update(fill_value=fill, extensions=[], attributes={})
        level = {"configuration": {"level": 3 if order == "C" else 1}}
        if self.year == 2020:
            codec = {"codec": "https://purl.org/zarr/spec/codec/gzip/1.0", **level}
            common.update({"compressor": codec} if gzipped else {})
            return {"data_type": dtype.str.lstrip("|"), **common}
        uri = "https://purl.org/zarr/spec/codecs/{}/1.0".format
        endian = "big" if dtype.str[0] == ">" else "little"
        codecs = [{"type": uri("endian"), "configuration": {"endian": endian}}]
        codecs += [{"type": uri("gzip"), **level}] if gzipped else []
        return {"data_type": dtype.name, "codecs": codecs, **common}

    def make(self, folder):
        core = "https://purl.org/zarr/spec/core/3.0"
        suffix = {"type": "json", "metadata_key_suffix": ".json"}
        entry = {"zarr_format": core, "extensions": [], "metadata_encoding": suffix}
        if self.year == 2020:
            core = "https://purl.org/zarr/spec/protocol/core/3.0"
            entry = {"zarr_format": core, "metadata_encoding": core, "metadata_key_suffix": ".json"}
        write_json(folder / "zarr.json", entry)
        self.make_group(folder, "g")
        self.make_group(folder, "g/h")
        for path, shape, dtype, chunks, how in (
            ("a", (13, 7), ">i2", (4, 3), ("C", False, 7)),
            ("big", (3000,), "<i4", (500,), ("C", False, 0)),
            ("g/z", (20,), "<f8", (6,), ("C", True, 1.5)),
            ("g/h/f", (9, 10), ">i4", (2, 4), ("F", True, -3)),
            ("g/o", (9, 10), "<f8", (3, 4), ("F", False, 0)),
        ):
            dtype = np.dtype(dtype)
            write_json(folder / self.document(path), self.members(shape, dtype, chunks, how))
            array = self.open(folder, path)
            array.write(..., values_for(shape, dtype))
            array.folder.joinpath(array.key((0,) * len(shape))).unlink()
        (folder / "plain/n1").mkdir(parents=True)
        for path in ("n0", "plain/n0", "plain/n1/n2"):
            (folder / path).write_bytes(path.encode() * 700)
