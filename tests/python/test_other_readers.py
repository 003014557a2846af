"""`tree` and `info` beside what zarr-python, GDAL and ome_zarr say of the same stores: the corpus, the samples, images.

Where they differ is listed here with the reason; everything else has to be the same.
"""

import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import zarr

import needs
from mounting import ROOT, zarrfs

SAMPLES = ["climate.zarr", "relief.zarr"]

# What zarr-python 3.1 does not open, and why; drafts of v3 and N5 it does not know at all.
NOT_OPENED = {
    "numcodecs-fixture/codecs.zarr": "no document at the root",
    "zarrs-fixtures/sharded_array_write_read.zarr": "no document at the root",
    "zarrs-fixtures/v3/array_optional.zarr": "an unknown data type",
    "zarrs-fixtures/v3/array_optional_nested.zarr": "an unknown data type",
    "zarrs-fixtures/v2/array_zfpy_C.zarr": "an unknown codec",
}

# Nodes that zarr-python does not open in stores that it opens: data types and fill values that it does not know.
NOT_OPENED_NODES = {
    "zarr-python-2.13-v2/codecs.zarr": {"vlen/bytes"},
    "zarr-python-2.13-v2/dtypes.zarr": {"struct/nested"},
    "zarr-python-3.0/dtypes.zarr": {"ext/S6"},
    "zarr-python-3.0/v2.zarr": {"d/6_F", "d/8_F"},
    "zarrita.js-fixtures/v2.zarr": {"1d.contiguous.json2.O"},
}

# What is behind the types of GDAL 3.6, which has none for the smaller ones.
GDAL_TYPES = {
    "Byte": {"uint8", "bool"},
    "Int16": {"int16", "int8"},
    "UInt16": {"uint16"},
    "Int32": {"int32"},
    "UInt32": {"uint32"},
    "Int64": {"int64"},
    "UInt64": {"uint64"},
    "Float32": {"float32", "float16"},
    "Float64": {"float64"},
    "CFloat32": {"complex64"},
    "CFloat64": {"complex128"},
}


def facts(store):
    """Returns {path: node} of `tree --json`."""
    found = json.loads(zarrfs("tree", "--json", store, check=False).stdout)
    return {node["path"]: node for node in found["nodes"]}


def info(store, path):
    return json.loads(zarrfs("info", "--json", f"{store}/{path}" if path else store).stdout)


def opened(store):
    """Opens a store with zarr-python; nothing if it does not."""
    place = zarr.storage.ZipStore(store, mode="r") if store.is_file() else store
    for options in ({}, {"use_consolidated": False}):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return zarr.open_group(place, mode="r", **options) if options else zarr.open(place, mode="r")
        except Exception:  # It fails in as many ways as there are stores.
            continue
    return None


def walk(node, path, missing):
    """Yields the nodes of zarr-python by their paths; those that it does not open go into `missing`."""
    yield path, node
    if isinstance(node, zarr.Array):
        return
    folder = node.store_path.store
    names = {key.split("/")[0] for key in keys(folder, node.path)}
    for name in sorted(names):
        below = f"{path}/{name}".strip("/")
        try:
            child = node[name]
        except KeyError:
            continue
        except Exception:
            missing.add(below)
            continue
        yield from walk(child, below, missing)


def keys(store, prefix):
    """Returns the names in a group's folder."""
    async def names():
        return [name async for name in store.list_dir(prefix)]

    return zarr.core.sync.sync(names())


def codecs(metadata):
    """Returns the names of an array's codecs as zarr-python has them, for v2 those of filters and compressor."""
    document = metadata.to_dict()
    if metadata.zarr_format == 3:
        return [codec["name"] for codec in document["codecs"]]
    steps = [*(document["filters"] or []), document["compressor"]]
    return [step["id"] for step in steps if step]


def dimension_names(node):
    """Returns the names of an array's dimensions: in v2 those that xarray writes."""
    if node.metadata.zarr_format == 3:
        return list(node.metadata.dimension_names or [])
    return node.attrs.get("_ARRAY_DIMENSIONS", [])


def plain(names):
    """Returns names of v3 as v2 has them: without the order of elements and bytes, which are members of their own in v2."""
    return [name.removeprefix("numcodecs.") for name in names if name not in ("bytes", "transpose")]


def same_fill(ours, node):
    """Whether a fill value is that of zarr-python."""
    metadata = node.metadata
    theirs = metadata.to_dict()["fill_value"]
    if json.dumps(ours) == json.dumps(theirs, default=str):
        return True
    if metadata.zarr_format == 2 and theirs in (None, "", 0, "0"):
        # In v2 null and 0 stand for zeros and no text at all: here it is shown what elements read as.
        return set(ours) <= {"A", "="} if isinstance(ours, str) else not np.any(ours)
    # A float of 32 bits has as many digits as it needs, and those of a double in zarr-python.
    return isinstance(ours, float) and node.dtype.type(ours) == node.dtype.type(theirs)


def faults_of(store, path, node, found):
    """Yields what zarrfs and zarr-python say otherwise of a node."""
    kind = "array" if isinstance(node, zarr.Array) else "group"
    full = info(store, path)
    if {found["kind"], full["kind"]} != {kind}:
        yield "kind", found["kind"], kind
        return
    attributes = json.loads(json.dumps(dict(node.attrs)))
    if json.dumps(full["attributes"], sort_keys=True) != json.dumps(attributes, sort_keys=True):
        yield "attributes", full["attributes"], attributes
    if found["attributes"] != len(attributes):
        yield "number of attributes", found["attributes"], len(attributes)
    if kind == "group":
        return
    metadata, is_v3 = node.metadata, node.metadata.zarr_format == 3
    mine, theirs = [codec["name"] for codec in full["codecs"]], codecs(metadata)
    pairs = {
        "shape": (full["shape"], list(node.shape)),
        "chunks": (full["chunk_shape"], list(node.shards or node.chunks)),
        # Of shards in shards zarr-python tells the outer ones, and none where a codec follows them.
        "inner chunks": (full["inner_chunk_shapes"][:1] if len(mine) == 1 else [], [list(node.chunks)] if node.shards else []),
        "data type": (full["data_type"], metadata.dtype.to_json(zarr_format=3)),
        "dimension names": (full["dimension_names"] or [], dimension_names(node)),
        "codecs": (mine, theirs) if is_v3 else (plain(mine), theirs),
    }
    if not is_v3 and len(node.shape) > 1:
        pairs["order"] = ("transpose" in mine, metadata.order == "F")
    yield from ((name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])
    if not same_fill(full["fill_value"], node):
        yield "fill value", full["fill_value"], metadata.to_dict()["fill_value"]
    # Those of netCDF have the array's coordinates as well, for which a tree reads no other nodes.
    files = [file for file in full["files"] if not file.endswith((".nc", ".nc4", ".h5"))]
    full = full | {"files": files}
    for name in full.keys() & found.keys() - {"attributes", "stored", "path"}:
        if full[name] != found[name]:
            yield f"{name} of tree and info", found[name], full[name]


def compare(name, store):
    """Returns what zarrfs and zarr-python say otherwise of a store; nothing where zarr-python does not open it."""
    root = opened(store)
    if root is None:
        return None
    ours, missing = facts(store), set()
    theirs = dict(walk(root, "", missing))
    assert missing == NOT_OPENED_NODES.get(name, set()), name
    faults = [("nodes", sorted(set(ours) - missing), sorted(theirs))] if set(ours) - missing != set(theirs) else []
    for path, node in theirs.items():
        faults += [(path, *fault) for fault in faults_of(store, path, node, ours[path])] if path in ours else []
    return faults


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_agree_with_zarr_python(name):
    assert compare(name, ROOT / "samples" / name) == []


def test_stores_of_the_corpus_agree_with_zarr_python(corpus_store, corpus_folder):
    name, entries = corpus_store
    faults = compare(name, corpus_folder / name)
    if faults is None:
        is_known = {entry["dialect"] for entry in entries} <= {"v2", "v3"}
        assert not is_known or name in NOT_OPENED, f"zarr-python does not open {name}"
        return
    assert name not in NOT_OPENED and faults == []


def gdal_arrays(group, path=""):
    """Yields the arrays of a group as gdalmdiminfo prints it, by their paths."""
    for name, array in group.get("arrays", {}).items():
        yield f"{path}/{name}".strip("/"), array
    for name, below in group.get("groups", {}).items():
        yield from gdal_arrays(below, f"{path}/{name}")


@pytest.fixture
def gdalmdiminfo():
    needs.require("gdalmdiminfo", shutil.which("gdalmdiminfo"), source=" (scripts/setup tools installs it)")

    def described(store):
        done = subprocess.run(["gdalmdiminfo", store], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None

    return described


def test_a_sample_agrees_with_gdal(gdalmdiminfo):
    # GDAL 3.6 knows v2, and of v3 a draft.
    store = ROOT / "samples" / "relief.zarr"
    assert same_to_gdal(store, gdalmdiminfo(store)) == 2


def test_arrays_of_the_corpus_agree_with_gdal(gdalmdiminfo, corpus_store, corpus_folder):
    name, entries = corpus_store
    store = corpus_folder / name
    if store.is_dir() and {entry["dialect"] for entry in entries} == {"v2"}:
        described = gdalmdiminfo(store)
        if described is not None and described.get("type") == "group":
            same_to_gdal(store, described)


def same_to_gdal(store, described):
    """Fails if an array is another one than GDAL says; returns how many there are."""
    ours, count = facts(store), 0
    for path, array in gdal_arrays(described):
        # GDAL shows an array that is the root as one of its name in a group.
        path = "" if ours[""]["kind"] == "array" else path
        mine, full = ours[path], info(store, path)
        count += 1
        assert mine["shape"] == array.get("dimension_size", []), path
        if "block_size" in array and all(array["block_size"]):
            assert full["chunk_shape"] == array["block_size"], path
        datatype = array["datatype"]
        if isinstance(datatype, str) and datatype in GDAL_TYPES:
            assert mine["data_type"] in GDAL_TYPES[datatype], path
        nodata = array.get("nodata_value")
        if isinstance(nodata, (int, float)) and isinstance(full["fill_value"], (int, float)):
            assert float(full["fill_value"]) == pytest.approx(nodata), path
        for name, value in array.get("attributes", {}).items():
            value = value["value"] if isinstance(value, dict) and "value" in value else value
            assert full["attributes"][name] == value, (path, name)
    return count


def make_image(store, version):
    """Makes an OME-Zarr image of three levels, with two labels."""
    axes = [{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    levels = {str(level): (2, 64 >> level, 48 >> level) for level in range(3)}

    def described(group, levels, **more):
        scale = [{"type": "scale", "scale": [1, 0.5, 0.5]}]
        datasets = [{"path": name, "coordinateTransformations": scale} for name in levels]
        scales = {"multiscales": [{"name": "image", "axes": axes, "datasets": datasets}], **more}
        if version == "0.4":
            scales["multiscales"][0]["version"] = version
        group.attrs.update(scales if version == "0.4" else {"ome": {"version": version, **scales}})
        for name, shape in levels.items():
            group.create_array(name, data=np.zeros(shape, "u2"), chunks=(1, 16, 16))

    root = zarr.open_group(store, mode="w", zarr_format=2 if version == "0.4" else 3)
    described(root, levels)
    labels = root.create_group("labels")
    names = {"labels": ["cells", "nuclei"]}
    labels.attrs.update(names if version == "0.4" else {"ome": {"version": version, **names}})
    for name in names["labels"]:
        described(labels.create_group(name), {"0": (2, 64, 48)}, **{"image-label": {"version": version}})


def ome_zarr_images(store):
    """Returns what `ome_zarr info` says: {path of an image: (version, [shape of a level])}."""
    said = subprocess.run(
        [sys.executable, "-c", "from ome_zarr.cli import main; main()", "info", store],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    images = {}
    for line in said.splitlines():
        if line.startswith("/"):
            path = line.split(" [")[0]
            images[path] = image = [None, []]
        elif line.startswith(" - version: "):
            image[0] = line.split(": ")[1]
        elif line.startswith("   - ("):
            image[1].append([int(number) for number in line.strip(" -()").split(",")])
    return {path.removeprefix(f"{store}").strip("/"): image for path, image in images.items()}


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_images_agree_with_ome_zarr(tmp_path, version):
    store = tmp_path / "image.zarr"
    make_image(store, version)
    images = ome_zarr_images(store)
    assert set(images) == {"", "labels", "labels/cells", "labels/nuclei"}
    assert images[""][1] == [[2, 64, 48], [2, 32, 24], [2, 16, 12]]
    nodes = facts(store)
    for path, (said, shapes) in images.items():
        attributes = info(store, path)["attributes"]
        ome = attributes.get("ome", attributes)
        scales = ome.get("multiscales", [])
        if scales:
            assert said == ome.get("version", scales[0].get("version"))
        levels = [level["path"] for scale in scales for level in scale["datasets"]]
        assert [nodes[f"{path}/{level}".strip("/")]["shape"] for level in levels] == shapes
