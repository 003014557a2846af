"""Stores of v2 and final v3 as plain directories, whose arrays zarr-python reads and writes. No zarrfs takes part.

Paths of nodes are relative, without a slash at either end. A store that is made here holds an array of every kind that
is written differently: uncompressed and compressed, sharded, in F order, with chunks cut at the edge and missing, without
dimensions, and one of several pages.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import zarr

import layout

PLAIN_CODECS = {"bytes", "endian", "transpose"}


def boxes(shape, chunks):
    """Returns the indices and the slices, clipped at the edge, of all chunks."""
    for index in layout.chunk_indices(shape, chunks):
        yield index, layout.chunk_box(index, shape, chunks)


def read_json(path):
    return json.loads(Path(path).read_bytes())


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def values_for(shape, dtype, step=3):
    count = int(np.prod(shape))
    return (np.arange(count) * step % 251).astype(dtype).reshape(shape)


class Form:
    """What is the same for every dialect; `folder` is where the store lies."""

    root_has_attributes = True

    def arrays(self, folder):
        return [path for path, kind in self.nodes(folder).items() if kind == "array"]

    def groups(self, folder):
        return [path for path, kind in self.nodes(folder).items() if kind == "group"]

    def copy(self, source, place, old, new):
        """Copies a node with all below it from one store to another."""
        for home, other in zip(self.homes(old), self.homes(new)):
            if (source / home).is_dir():
                shutil.copytree(source / home, place / other)
            elif (source / home).exists():
                (place / other).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / home, place / other)

    def move(self, folder, old, new):
        """Renames a node with all below it."""
        for home, other in zip(self.homes(old), self.homes(new)):
            if (folder / home).exists():
                (folder / other).parent.mkdir(parents=True, exist_ok=True)
                os.rename(folder / home, folder / other)

    def remove(self, folder, path):
        """Removes a node with all below it."""
        for home in self.homes(path):
            if (folder / home).is_dir():
                shutil.rmtree(folder / home)
            elif (folder / home).exists():
                (folder / home).unlink()


class ZarrArray:
    """An array that zarr-python opens."""

    def __init__(self, folder, path):
        self.array = zarr.open_array(folder / path, mode="r+")
        self.folder, self.path = folder, path
        self.shape, self.dtype = self.array.shape, self.array.dtype.newbyteorder("<")
        self.chunks = self.array.shards or self.array.chunks
        metadata = self.array.metadata
        if metadata.zarr_format == 2:
            self.is_plain = not metadata.compressor and not metadata.filters
        else:
            self.is_plain = {codec.to_dict()["name"] for codec in metadata.codecs} <= PLAIN_CODECS

    def read(self):
        return np.asarray(self.array[...], self.dtype)

    def write(self, box, values):
        self.array[box] = values

    def write_some(self, mask, whole):
        """Writes the elements that a mask has."""
        if self.shape:
            self.array.set_mask_selection(mask, whole[mask])
        else:
            self.array[...] = whole

    def resize(self, shape):
        self.array.resize(shape)

    def key(self, index):
        """Returns the place of a chunk in the store."""
        return os.path.join(self.path, self.array.metadata.encode_chunk_key(index))


class ZarrPython(Form):
    """Final v3 and v2."""

    def __init__(self, version):
        self.version = version
        self.name = f"v{version}"

    def open(self, folder, path):
        return ZarrArray(folder, path)

    def homes(self, path):
        return [path]

    def document(self, path, kind="array"):
        name = {"array": ".zarray", "group": ".zgroup"}[kind] if self.version == 2 else "zarr.json"
        return os.path.join(path, name)

    def kind(self, folder):
        """Returns what a folder is."""
        if self.version == 2:
            return "array" if (folder / ".zarray").is_file() else "group"
        document = folder / "zarr.json"
        return read_json(document)["node_type"] if document.is_file() else "group"

    def nodes(self, folder, path="", hidden=False):
        """Returns what each node is, by its path; with `hidden` those below arrays too."""
        found = {path: self.kind(folder / path)}
        if found[path] == "group" or hidden:
            for entry in sorted(os.scandir(folder / path), key=lambda entry: entry.name):
                if entry.is_dir():
                    found.update(self.nodes(folder, os.path.join(path, entry.name), hidden))
        return found

    def attributes(self, folder, path):
        if self.version == 2:
            place = folder / path / ".zattrs"
            return read_json(place) if place.exists() else {}
        place = folder / path / "zarr.json"
        return read_json(place).get("attributes", {}) if place.exists() else {}

    def set_attributes(self, folder, path, attributes):
        place = folder / path
        document = folder / self.document(path, self.kind(place))
        if not document.exists():
            self.write_group(folder, path)
        if self.version == 2:
            write_json(place / ".zattrs", attributes)
        else:
            write_json(document, {**read_json(document), "attributes": attributes})

    def write_group(self, folder, path):
        members = {"zarr_format": self.version}
        if self.version == 3:
            members.update(node_type="group", attributes={})
        write_json(folder / self.document(path, "group"), members)

    def make_group(self, folder, path):
        """Makes a group, and documents of those above that have none."""
        while path and not (folder / self.document(path, "group")).exists():
            self.write_group(folder, path)
            path = os.path.dirname(path)

    def make_array(self, folder, path, metadata):
        """Makes an array out of a group, by metadata of final v3."""
        if self.version == 3:
            write_json(folder / path / "zarr.json", metadata)
            return
        (folder / path / ".zgroup").unlink()
        gzipped = [codec for codec in metadata["codecs"] if codec["name"] == "gzip"]
        letter = {"int32": "i4", "float64": "f8", "uint8": "u1"}[metadata["data_type"]]
        members = {
            "zarr_format": 2,
            "shape": metadata["shape"],
            "chunks": metadata["chunk_grid"]["configuration"]["chunk_shape"],
            "dtype": ("|" if letter == "u1" else "<") + letter,
            "order": "C",
            "compressor": {"id": "gzip", "level": 3} if gzipped else None,
            "filters": None,
            "fill_value": metadata["fill_value"],
        }
        write_json(folder / path / ".zarray", members)
        write_json(folder / path / ".zattrs", metadata["attributes"])

    def make(self, folder):
        """Makes a store."""
        root = zarr.create_group(folder, zarr_format=self.version, attributes={"of": "all"})
        kinds = dict(self.kinds())
        for path, (shape, dtype, options) in kinds.items():
            array = root.create_array(path, shape=shape, dtype=dtype, **options)
            array[...] = values_for(shape, dtype)
            array.attrs["name"] = path
        for path in ("a", "g/z", "g/h/f"):
            os.unlink(folder / self.open(folder, path).key((0,) * len(kinds[path][0])))
        (folder / "plain/n1").mkdir(parents=True)
        for path in ("n0", "plain/n0", "plain/n1/n2", "a/n1", "g/n3"):
            (folder / path).write_bytes(path.encode() * 700)

    def kinds(self):
        """Returns paths, shapes, types and the rest of what makes each array."""
        none = {"compressors": None}
        yield "a", ((13, 7), ">i2", {"chunks": (4, 3), "fill_value": 7, **none})
        yield "big", ((3000,), "<i4", {"chunks": (500,), **none})
        yield "dot", ((), "<f8", {"fill_value": 1.5, **none})
        yield "g/z", ((20,), "<f8", {"chunks": (6,), "fill_value": float("nan")})
        if self.version == 2:
            yield "g/h/f", ((5, 6, 4), "<u2", {"chunks": (2, 4, 4), "order": "F"})
            yield "g/o", ((9, 10), "<c8", {"chunks": (3, 4), "order": "F", **none})
            return
        turned = [zarr.codecs.TransposeCodec(order=(1, 0))]
        yield "g/h/f", ((9, 10), ">i4", {"chunks": (2, 4), "filters": turned})
        yield "g/o", ((9, 10), "<c8", {"chunks": (3, 4), "filters": turned, **none})
        yield "g/s", ((16, 13), "<u2", {"chunks": (4, 3), "shards": (8, 6), "fill_value": 9})
        flat = {"chunks": (5, 5), "shards": (10, 15), **none}
        yield "s", ((10, 35), "|u1", flat)
