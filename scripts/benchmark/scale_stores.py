"""The stores of the part `scale`: many arrays, long metadata files and many chunks, written as text without a library.

Each function makes a store. It takes a new directory, and the size in names or bytes.
"""

import json
import os

MIB = 1 << 20

V3_ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0.0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "storage_transformers": [],
}
V3_GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
V2_ARRAY = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<f4",
    "compressor": None,
    "fill_value": 0.0,
    "order": "C",
    "filters": None,
}
CHUNK = bytes(8)


def attributes(length, number=0):
    """Returns attributes whose text has about `length` bytes: words, numbers and lists of a climate model."""
    made, size = {"long_name": f"a variable, number {number}"}, 40
    while size < length:
        name = f"history_{len(made)}"
        made[name] = {"text": "made by a model " * 4, "levels": [size, 0.5, 1e-7, None], "on": True}
        size += len(name) + len(json.dumps(made[name])) + 6
    return made


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def documents(store, arrays, length):
    """Makes a hierarchy of final v3. Its arrays have metadata files of `length` bytes, in groups of a hundred."""
    write(store / "zarr.json", V3_GROUP)
    for number in range(arrays):
        group = store / f"group{number // 100}"
        if number % 100 == 0:
            write(group / "zarr.json", V3_GROUP)
        array = group / f"array{number}"
        write(array / "zarr.json", V3_ARRAY | {"attributes": attributes(length, number)})
        (array / "c").mkdir()
        (array / "c" / "0").write_bytes(CHUNK)


def consolidated_v2(store, arrays, length):
    """Makes a hierarchy of v2 with consolidated metadata of about `arrays * length` bytes."""
    found = {".zgroup": {"zarr_format": 2}, ".zattrs": {}}
    for number in range(arrays):
        array = f"group{number // 100}/array{number}"
        found[f"group{number // 100}/.zgroup"] = {"zarr_format": 2}
        found[f"{array}/.zarray"] = V2_ARRAY
        found[f"{array}/.zattrs"] = attributes(length - 300, number)
    for key, document in found.items():
        write(store / key, document)
        if key.endswith(".zarray"):
            (store / key).with_name("0").write_bytes(CHUNK)
    write(store / ".zmetadata", {"metadata": found, "zarr_consolidated_format": 1})


def consolidated_v3(store, arrays, length):
    """Makes a hierarchy of final v3 whose root has consolidated metadata of about `arrays * length` bytes."""
    found = {}
    for number in range(arrays):
        found[f"group{number // 100}"] = V3_GROUP
        array = V3_ARRAY | {"attributes": attributes(length - 400, number)}
        found[f"group{number // 100}/array{number}"] = array
    for path, document in found.items():
        write(store / path / "zarr.json", document)
        if document["node_type"] == "array":
            (store / path / "c").mkdir()
            (store / path / "c" / "0").write_bytes(CHUNK)
    inline = {"kind": "inline", "must_understand": False, "metadata": found}
    write(store / "zarr.json", V3_GROUP | {"consolidated_metadata": inline})


def long_attributes(store, length):
    """Makes a v2 array and a final-v3 array with metadata files of about `length` bytes, and not more."""
    long = attributes(length - 4096)
    write(store / ".zgroup", {"zarr_format": 2})
    write(store / "old" / ".zarray", V2_ARRAY)
    write(store / "old" / ".zattrs", long)
    write(store / "new" / "zarr.json", V3_ARRAY | {"attributes": long})


def flat_array(store, chunks):
    """Makes an array with all chunks stored, in one directory."""
    write(store / ".zarray", V2_ARRAY | {"shape": [2 * chunks]})
    for number in range(chunks):
        file = os.open(store / str(number), os.O_CREAT | os.O_WRONLY)
        os.write(file, CHUNK)
        os.close(file)
