"""Every array of the corpus as plain Zarr, read by programs that never knew its dialect.

Each program reads all arrays in one process. What a program cannot have is a row of ROWS with the reason; a row that
names an array that is read is a fault as well.
"""

import json
import math
import os
import shutil
import subprocess
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numcodecs
import numpy as np
import pandas
import pytest
import tensorstore
import xarray
import zarr
from ome_zarr_models.v04.image import ImageAttrs
from zarr.codecs import ShardingCodec

import corpus
import layout
import mounting
import needs
import places
from mounting import ROOT
from read_plain import little_endian
from servers.keys_only import KeysOnly
from test_other_readers import make_image

FOLDER = Path(__file__).parent
MODULES = ROOT / ".tools/npm/node_modules"
ZARR_2 = ROOT / ".venv2/bin/python"
ZARR_3 = ROOT / ".venv/bin/python"
DEBIAN = Path("/usr/bin/python3")

# A program that reads the arrays in a view; `word` is what a test needs for it.
Reader = namedtuple("Reader", "view command word")


def by_python(python, function):
    return [python, FOLDER / "read_plain.py", function]


def by_node(version):
    return ["node", FOLDER / "read_plain.mjs", MODULES, version]


READERS = {
    "zarr-python 2.18": Reader("v2", by_python(ZARR_2, "consolidated_v2"), "zarr2"),
    "zarr-python 3.1, v2": Reader("v2", by_python(ZARR_3, "zarr_v2"), None),
    "zarr-python 3.1": Reader("v3", by_python(ZARR_3, "consolidated_v3"), None),
    "zarr-python 3.1, files view": Reader("files", by_python(ZARR_3, "zarr_v3"), None),
    "tensorstore, v2": Reader("v2", by_python(ZARR_3, "tensorstore_v2"), None),
    "tensorstore": Reader("v3", by_python(ZARR_3, "tensorstore_v3"), None),
    "xarray, v2": Reader("v2", by_python(ZARR_3, "xarray_v2"), None),
    "xarray": Reader("v3", by_python(ZARR_3, "xarray_v3"), None),
    "zarrita.js, v2": Reader("v2", by_node("v2"), "zarrita"),
    "zarrita.js": Reader("v3", by_node("v3"), "zarrita"),
    "GDAL": Reader("v2", by_python(DEBIAN, "gdal_v2"), "gdalmdiminfo"),
    "NCZarr": Reader("v2", by_python(ZARR_3, "netcdf"), "nccopy"),
}

OF_V3 = ("zarr-python 3.1", "zarr-python 3.1, files view", "tensorstore", "zarrita.js")
ZARRITA = ("zarrita.js", "zarrita.js, v2")
TENSORSTORE = ("tensorstore", "tensorstore, v2")

# An array of the corpus: its documents in the v2 view, and the folders of its store's views.
Plain = namedtuple("Plain", "entry document attributes views")


def dtype(plain):
    return plain.document["dtype"]


def is_kind(*kinds):
    """Of one of numpy's kinds of data types, or `O`; structured ones are of no kind."""
    return lambda plain: isinstance(dtype(plain), str) and dtype(plain)[1] in kinds


def is_structured(plain):
    return not isinstance(dtype(plain), str)


def has_nested_fields(plain):
    return is_structured(plain) and any(isinstance(field[1], list) for field in dtype(plain))


def has_shaped_fields(plain):
    return is_structured(plain) and any(len(field) > 2 for field in dtype(plain))


def has_texts_in_fields(plain):
    return is_structured(plain) and any(str(field[1])[1] in "SU" for field in dtype(plain))


def is_half(plain):
    return dtype(plain) == "<f2"


def is_encoded(codec):
    """Of no fixed length, encoded by this codec."""
    return lambda plain: dtype(plain) == "|O" and plain.document["filters"][0]["id"] == codec


def is_empty(plain):
    return 0 in plain.document["shape"]


def is_scalar(plain):
    return plain.document["shape"] == []


def has_large_fill(plain):
    """An integer that a double cannot hold."""
    fill = plain.document["fill_value"]
    return isinstance(fill, int) and int(float(fill)) != fill


def has_complex_fill(plain):
    return is_kind("c")(plain) and plain.document["fill_value"] is not None


def has_fill_of_bytes(plain):
    return is_kind("S")(plain) and (plain.document["fill_value"] or "").strip("A=") != ""


def has_large_chunks(plain):
    """Chunks that are longer than the array."""
    pairs = zip(plain.document["shape"], plain.document["chunks"])
    return any(length < chunk for length, chunk in pairs)


def has_lists_of_objects(plain):
    """In its attributes."""
    lists = [value for value in plain.attributes.values() if isinstance(value, list)]
    return any(isinstance(each, dict) for value in lists for each in value)


def is_huge(plain):
    """Too large for any disk."""
    return math.prod(plain.document["shape"]) > 1 << 60


def is_called_as_a_document(plain):
    """A node that v3 has no place for: the folder of its group has a document of this name."""
    return plain.entry["array"].endswith("/zarr.json")


# What a program cannot have: its names, the arrays, and why.
ROWS = [
    (OF_V3, is_called_as_a_document, "has no folder beside the document of its group"),
    (("zarr-python 3.1, v2",), is_encoded("vlen-array"), "knows no lists"),
    (("zarr-python 3.1, v2",), has_nested_fields, "knows no fields of fields in v2"),
    (("zarr-python 3.1, v2",), has_shaped_fields, "knows no fields with a shape in v2"),
    (TENSORSTORE, is_structured, "reads one field at a time"),
    (TENSORSTORE, is_kind("m", "M"), "knows no dates"),
    (TENSORSTORE, is_kind("U"), "knows no texts of a fixed length"),
    (TENSORSTORE, is_kind("O"), "knows no elements of no fixed length"),
    (TENSORSTORE, is_kind("V"), "gives numpy 2.4 elements of no bytes"),
    (("tensorstore, v2",), is_kind("S"), "gives numpy 2.4 elements of no bytes"),
    (("tensorstore",), is_kind("S"), "knows no bytes of a fixed length in v3"),
    (ZARRITA, is_structured, "knows no structured types"),
    (ZARRITA, is_kind("c"), "knows no complex numbers"),
    (ZARRITA, is_kind("m", "M"), "knows no dates"),
    (ZARRITA, is_kind("V"), "knows no raw bytes"),
    (ZARRITA, is_half, "has no float16 in Node 20"),
    (ZARRITA, is_encoded("vlen-bytes"), "knows no bytes of no fixed length"),
    (ZARRITA, is_encoded("vlen-array"), "knows no lists"),
    (ZARRITA, is_empty, "fails on an array of no elements"),
    (ZARRITA, has_large_fill, "takes fill values for doubles"),
    (("zarrita.js",), is_kind("S", "U"), "knows no texts of a fixed length in v3"),
    (("zarrita.js, v2",), has_fill_of_bytes, "takes base64 for the fill value itself"),
    (("GDAL",), is_kind("O", "m", "M", "V"), "knows numbers and texts of a fixed length only"),
    (("GDAL",), is_kind("S", "U"), "has no texts of a fixed length in Python"),
    (("GDAL",), has_texts_in_fields, "has no texts of a fixed length in Python"),
    (("GDAL",), has_shaped_fields, "knows no fields with a shape"),
    (("GDAL",), has_complex_fill, "knows no fill values of complex numbers"),
    (("GDAL",), has_large_fill, "takes fill values for doubles"),
    (("GDAL",), is_empty, "refuses an array of no elements"),
    (("NCZarr",), is_kind("O", "m", "M", "V", "S", "U", "b", "c"), "knows integers and floats only; 4.9.0 crashes"),
    (("NCZarr",), is_structured, "knows integers and floats only; 4.9.0 crashes"),
    (("NCZarr",), is_half, "knows integers and floats only; 4.9.0 crashes"),
    (("NCZarr",), is_scalar, "crashes on an array of no dimensions"),
    (("NCZarr",), has_large_chunks, "refuses chunks that are longer than the array"),
    (("NCZarr",), has_lists_of_objects, "fails on attributes that are lists of objects"),
    (("NCZarr",), is_huge, "copies arrays as a whole"),
]


def readable(entry):
    """Whether the corpus says what the elements are."""
    return entry["expect"] in ("ok", "optional") and ("sha256" in entry or "regions" in entry)


# Stores with an array for each thing that a plain chunk has to get right, which the corpus may lack.
def make_v3(store):
    """Makes a store of v3 and returns {name: elements}."""
    root = zarr.open_group(store, mode="w", zarr_format=3)
    made = {}

    def put(name, data, **options):
        array = root.create_array(name, shape=data.shape, **{"dtype": data.dtype, **options})
        array[...] = data
        made[name] = array[...]

    put("strings", np.array(["a", "", "\u00fc\u20ac", "long" * 9, "e"], dtype=object), dtype=str, chunks=(2,))
    put("edges", np.arange(35, dtype=">i4").reshape(5, 7), chunks=(2, 3), fill_value=-1)
    put("written", np.array(7, dtype="<i4"))
    put("dates", np.array(["2000-01-01", "1969-12-31T23:59:59"], dtype="M8[s]"), chunks=(1,))
    put("records", np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i2"), ("b", "<f8")]), chunks=(1,))
    put("bytes", np.array([b"a", b"bcd"], dtype="S3"), chunks=(1,))
    # Chunks and inner chunks that are not stored.
    sparse = np.full((6, 6), np.nan, dtype="<f4")
    sparse[:2, 2:4] = 1
    put("sparse", sparse, chunks=(2, 2), fill_value=np.nan)
    partial = np.full((10, 12), 9, dtype="<u2")
    partial[:3, :4] = np.arange(12).reshape(3, 4)
    put("shards", partial, chunks=(2, 3), shards=(4, 6), fill_value=9)
    inner = ShardingCodec(chunk_shape=(4,), codecs=[ShardingCodec(chunk_shape=(2,))])
    nested = np.array([1, 2, 3, *[5] * 13], dtype="<i2")
    put("nested", nested, chunks=(8,), serializer=inner, compressors=None, fill_value=5)
    for name, shape in (("scalar", ()), ("empty", (0, 3))):
        array = root.create_array(name, shape=shape, chunks=(1,) * len(shape), dtype="<f8", fill_value=2.5)
        made[name] = array[...]
    return made


def make_v2(store):
    """Makes a store of v2 and returns {name: elements}."""
    root = zarr.open_group(store, mode="w", zarr_format=2)
    made = {}

    def put(name, data, **options):
        array = root.create_array(name, shape=data.shape, **{"dtype": data.dtype, **options})
        array[...] = data
        made[name] = array[...]

    put("strings", np.array(["a", "", "\u00fc\u20ac", "long" * 9, "e"], dtype=object), dtype=str, chunks=(2,))
    put("columns", np.arange(35, dtype=">f8").reshape(5, 7), chunks=(2, 3), order="F")
    put("fixed", np.array(["ab", "\u00fc", ""], dtype=">U2"), chunks=(2,))
    put("truths", np.array([True, False, True]), chunks=(2,))
    put("complex", np.array([1 + 2j, -3j], dtype="<c16"), chunks=(1,))
    # zarr-python 3 writes no objects of v2 but texts.
    bytes_ = np.array([b"a", b"", b"\0\xff"], dtype=object)
    put_objects(store, "bytes", bytes_, numcodecs.VLenBytes())
    lists = np.empty(3, dtype=object)
    lists[:] = [np.array([1, 2], "<i4"), np.array([], "<i4"), np.array([3], "<i4")]
    put_objects(store, "lists", lists, numcodecs.VLenArray("<i4"))
    return made | {"bytes": bytes_, "lists": lists}


def put_objects(store, name, data, codec):
    """Writes an array of objects as the only chunk of an array of v2."""
    folder = store / name
    folder.mkdir(parents=True)
    document = {
        "zarr_format": 2, "shape": data.shape, "chunks": data.shape, "dtype": "|O", "compressor": None, "fill_value": None,
        "filters": [codec.get_config()], "order": "C",
    }
    (folder / ".zarray").write_text(json.dumps(document))
    (folder / "0").write_bytes(bytes(codec.encode(data)))


MAKERS = {"made/v2.zarr": make_v2, "made/v3.zarr": make_v3}


def made_entries(folder):
    """Makes the stores in a folder; returns their arrays as the manifest of the corpus has its own."""
    entries = []
    for name, make in MAKERS.items():
        for array, data in make(folder / name).items():
            entries.append({
                "id": f"{name}:/{array}", "source": "made", "store": Path(name).name, "array": f"/{array}",
                "shape": list(data.shape), "sha256": corpus.digest(little_endian(np.asarray(data))),
            })
    return entries


@pytest.fixture(scope="module")
def plain_arrays(corpus_folder):
    """Mounts every store of the corpus, and those that are made here, and returns their arrays."""
    entries = [*filter(readable, corpus.entries()), *made_entries(corpus_folder)]
    stores = corpus.by_store(entries)
    with ThreadPoolExecutor(4) as workers, ExitStack() as ends:
        mounts = [mounting.Mount(corpus_folder / name) for name in stores]
        for _ in workers.map(ends.enter_context, mounts):
            pass
        folders = [mount.path / ".zarrfs" for mount in mounts]
        yield [plain_array(entry, views) for views, entries in zip(folders, stores.values()) for entry in entries]


def plain_array(entry, views):
    folder = views / "v2" / entry["array"].strip("/")
    read = (json.loads((folder / name).read_text()) for name in (".zarray", ".zattrs"))
    return Plain(entry, *read, views)


def job(plain, reader):
    """Returns what a reader is told of an array."""
    entry = plain.entry
    told = {"id": entry["id"], "store": f"{plain.views}/{reader.view}", "array": entry["array"].strip("/")}
    if "regions" in entry:
        region = entry["regions"][0]
        told["box"] = [[start, start + length] for start, length in zip(region["start"], region["shape"])]
    if isinstance(dtype(plain), str):
        told["dtype"] = dtype(plain)
    return told


def expected(entry):
    """Returns shape and digest of the elements."""
    part = entry["regions"][0] if "regions" in entry else entry
    return part["shape"], part["sha256"]


def read_all(command, jobs):
    """Returns the answers of a program by the ids of the jobs."""
    lines = "".join(json.dumps(each) + "\n" for each in jobs)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {found["id"]: found for found in answers}


def require(reader):
    """Fails the test if the program is missing."""
    is_here = {
        None: True,
        "zarr2": ZARR_2.exists(),
        "zarrita": (MODULES / "zarrita").exists(),
        "gdalmdiminfo": bool(shutil.which("gdalmdiminfo")),
        "nccopy": bool(shutil.which("nccopy")),
    }
    if reader.word:
        kind = "python" if reader.word == "zarr2" else "tools"
        needs.require(reader.word, is_here[reader.word], "vtk.js" if reader.word == "zarrita" else reader.word,
                      source=f" (scripts/setup {kind} installs it)")


def of_datasets(plain_arrays, view):
    """Returns the arrays that xarray can open: all dimensions of all arrays of their group have names."""
    groups = {}
    for plain in plain_arrays:
        parent, _, name = plain.entry["array"].strip("/").rpartition("/")
        if name:
            groups.setdefault((plain.views, parent), []).append(plain)
    return [plain for group in groups.values() if all(has_names(plain, view) for plain in group) for plain in group]


def has_names(plain, view):
    if view == "v2":
        return "_ARRAY_DIMENSIONS" in plain.attributes
    document = plain.views / view / plain.entry["array"].strip("/") / "zarr.json"
    return "dimension_names" in json.loads(document.read_text())


@pytest.mark.parametrize("name", [name for name in READERS if name != "NCZarr"])
def test_readers_read_the_corpus_equally_in_the_plain_views(name, plain_arrays):
    reader = READERS[name]
    require(reader)
    chosen = of_datasets(plain_arrays, reader.view) if name.startswith("xarray") else plain_arrays
    assert chosen
    answers = read_all(reader.command, [job(plain, reader) for plain in chosen])
    check_rows(name, chosen, answers)


def check_rows(name, chosen, answers):
    """Fails if an array differs that no row names, or a row names one that is the same."""
    rows = [(condition, reason) for names, condition, reason in ROWS if name in names]
    faults, used = [], set()
    for plain in chosen:
        found = answers[plain.entry["id"]]
        reasons = [reason for condition, reason in rows if condition(plain)]
        used.update(reasons)
        is_same = (found.get("shape"), found.get("sha256")) == expected(plain.entry)
        if is_same and reasons:
            faults.append(f"{plain.entry['id']}: is read, though it {reasons}")
        if not is_same and not reasons:
            faults.append(f"{plain.entry['id']}: {found}")
    faults += [f"no array needs the row {reason!r}" for _, reason in rows if reason not in used]
    assert not faults, "\n".join(faults)


def nczarr_group(folder, arrays):
    """Makes a group of links to arrays in the v2 view; NCZarr reads a group as a whole, or fails."""
    folder.mkdir()
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    for name, plain in arrays.items():
        (folder / name).symlink_to(plain.views / "v2" / plain.entry["array"].strip("/"))
    return f"file://{folder}#mode=zarr,file"


def test_nczarr_reads_the_corpus_equally_in_the_plain_views(plain_arrays, tmp_path):
    reader = READERS["NCZarr"]
    require(reader)
    rows = [condition for names, condition, _ in ROWS if "NCZarr" in names]
    arrays, excepted = {}, {}
    for number, plain in enumerate(plain_arrays):
        matching = [row for row in rows if row(plain)]
        if not matching:
            arrays[f"a{number}"] = plain
        elif len(matching) == 1:
            # One for each row and data type: a process for each array would take long.
            excepted.setdefault((matching[0], str(dtype(plain))[1]), (f"a{number}", plain))
    # Dimensions of one name have one length in a group.
    groups = {name: {name: plain} for name, plain in arrays.items() if "_ARRAY_DIMENSIONS" in plain.attributes}
    groups["all"] = {name: plain for name, plain in arrays.items() if name not in groups}
    jobs = []
    for group, members in groups.items():
        copy = tmp_path / f"{group}.nc"
        done = nccopy(nczarr_group(tmp_path / group, members), copy)
        assert (done.returncode, done.stderr) == (0, ""), members.keys()
        jobs += [{**job(plain, reader), "store": str(copy), "array": name} for name, plain in members.items()]
    check_rows(None, arrays.values(), read_all(reader.command, jobs))
    assert {row for row, _ in excepted} == set(rows)
    for name, plain in excepted.values():
        done = nccopy(nczarr_group(tmp_path / name, {name: plain}), tmp_path / f"{name}.nc")
        assert done.returncode != 0, f"{plain.entry['id']} is copied, though a row names it"


def nccopy(group, copy):
    return subprocess.run(["nccopy", "-k", "nc4", group, copy], capture_output=True, text=True)


def test_objects_are_json_texts(mounted, tmp_path):
    data = np.array([{"a": 1}, [1, 2], "three", None], dtype=object)
    zarr.open_group(tmp_path / "made.zarr", mode="w", zarr_format=2)
    for name, codec in (("json", numcodecs.JSON()), ("msgpack", numcodecs.MsgPack())):
        put_objects(tmp_path / "made.zarr", name, data, codec)
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    for view in ("v2", "v3"):
        opened = zarr.open_group(views / view, mode="r")
        for name in ("json", "msgpack"):
            assert list(opened[name][...]) == ['{"a":1}', "[1,2]", "three", "null"], (view, name)


def test_missing_chunks_have_no_file(mounted, tmp_path):
    make_v3(tmp_path / "made.zarr")
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    listed = {
        ("v2", "sparse"): [".zarray", ".zattrs", "0.1"],
        ("v3", "sparse"): ["c", "c/0", "c/0/1", "zarr.json"],
        # xarray would take a fill value that is stated in v2 for missing, so the chunk has a file.
        ("v2", "scalar"): [".zarray", ".zattrs", "0"],
        ("v3", "scalar"): ["zarr.json"],
        ("v2", "empty"): [".zarray", ".zattrs"],
        ("v3", "empty"): ["zarr.json"],
        ("v2", "written"): [".zarray", ".zattrs", "0"],
        ("v3", "written"): ["c", "zarr.json"],
        # Inner chunks of a shard that are not stored are missing chunks.
        ("v2", "nested"): [".zarray", ".zattrs", "0", "1"],
        ("v3", "nested"): ["c", "c/0", "c/1", "zarr.json"],
        ("v2", "shards"): [".zarray", ".zattrs", "0.0", "0.1", "1.0", "1.1"],
    }
    for (view, name), names in listed.items():
        assert layout.walk(views / view / name) == names, (view, name)
    for missing in ("v2/sparse/0.0", "v2/sparse/9.9", "v3/sparse/c/0/0", "v3/sparse/c/2/2", "v3/scalar/c", "files/sparse/c/0/0"):
        with pytest.raises(FileNotFoundError):
            (views / missing).read_bytes()


def test_chunks_at_an_edge_are_whole(mounted, tmp_path):
    make_v3(tmp_path / "made.zarr")
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    whole = np.full((6, 9), -1, dtype="<i4")
    whole[:5, :7] = np.arange(35).reshape(5, 7)
    for chunk in ("v2/edges/2.2", "v3/edges/c/2/2", "files/edges/c/2/2"):
        path = views / chunk
        assert path.read_bytes() == whole[4:, 6:].tobytes() and path.stat().st_size == 24


def test_a_rectilinear_grid_becomes_a_regular_one(mounted, tmp_path):
    data = np.arange(60, dtype="<i4").reshape(6, 10)
    zarr.open_group(tmp_path / "made.zarr", mode="w", zarr_format=3)
    folder = tmp_path / "made.zarr/a"
    lengths = [[4, 2], [2, 4, 4]]
    document = {
        "zarr_format": 3, "node_type": "array", "shape": data.shape, "data_type": "int32",
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": lengths}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": -1, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    rows, columns = ([0, *np.cumsum(each)] for each in lengths)
    for row in range(2):
        for column in range(3):
            chunk = folder / f"c/{row}/{column}"
            chunk.parent.mkdir(parents=True, exist_ok=True)
            box = np.s_[rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
            chunk.write_bytes(data[box].tobytes())
    (folder / "zarr.json").write_text(json.dumps(document))
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    for view in ("v2", "v3", "files"):
        opened = zarr.open_array(views / view / "a", mode="r", zarr_format=2 if view == "v2" else 3)
        assert opened.chunks == (4, 2)
        assert np.array_equal(opened[...], data)


def make_bfloat16(store):
    """Makes a store of which v2 has no name for an array."""
    spec = {
        "driver": "zarr3", "kvstore": {"driver": "file", "path": str(store / "half")},
        "metadata": {"shape": [4], "data_type": "bfloat16", "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}},
    }
    zarr.open_group(store, mode="w", zarr_format=3).create_array("whole", data=np.arange(3))
    opened = tensorstore.open(spec, create=True).result()
    opened[...] = np.arange(4).astype(opened.dtype.numpy_dtype)


def test_types_that_v2_lacks_are_left_out(mounted, tmp_path):
    make_bfloat16(tmp_path / "made.zarr")
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    assert sorted(os.listdir(views / "v2")) == [".zattrs", ".zgroup", ".zmetadata", "whole"]
    assert os.listdir(views / "v2/half") == ["ERROR.txt"]
    assert "bfloat16" in (views / "v2/half/ERROR.txt").read_text()
    assert not (views / "v2/half/.zarray").exists() and not (views / "v2/half/0").exists()
    assert "half" not in (views / "v2/.zmetadata").read_text()
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(views / "v3/half")}}
    assert np.array_equal(tensorstore.open(spec, open=True, read=True).result().read().result(), np.arange(4))
    done = mounting.zarrfs("cp", "--as", "v2", tmp_path / "made.zarr", tmp_path / "copy.zarr")
    assert "half" in done.stderr and "bfloat16" in done.stderr
    assert sorted(os.listdir(tmp_path / "copy.zarr")) == [".zattrs", ".zgroup", ".zmetadata", "whole"]


def test_a_node_with_the_name_of_a_document_is_left_out(corpus_folder, mounted):
    # An array of a draft is called `zarr.json`.
    views = mounted(corpus_folder / "drafts-from-seeds/main_2022.zr3").path / ".zarrfs"
    assert os.listdir(views / "v3/names").count("zarr.json") == 1
    assert json.loads((views / "v3/names/zarr.json").read_text())["node_type"] == "group"
    assert (views / "v2/names/zarr.json/.zarray").is_file()


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("make", [make_v2, make_v3])
def test_copies_equal_the_view(make, version, mounted, tmp_path):
    make(tmp_path / "made.zarr")
    view = mounted(tmp_path / "made.zarr").path / ".zarrfs" / version
    subprocess.run(["cp", "-r", view, tmp_path / "copied.zarr"], check=True)
    mounting.zarrfs("cp", "--as", version, tmp_path / "made.zarr", tmp_path / "converted.zarr")
    for copy in ("copied.zarr", "converted.zarr"):
        same_tree(view, tmp_path / copy)


def same_tree(one, other):
    done = subprocess.run(["diff", "-r", one, other], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_mount_of_a_view_equals_the_view(mounted, tmp_path):
    make_v3(tmp_path / "made.zarr")
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    for version in ("v2", "v3"):
        done = subprocess.run(["diff", "-r", "--exclude=.zarrfs", views / version, mounted(tmp_path / "made.zarr", "--view", version).path])
        assert done.returncode == 0


# xarray and netCDF.


def make_dataset(store, version):
    """Writes a dataset as xarray does, with everything that marks missing elements."""
    numbers = np.arange(24.0).reshape(2, 3, 4)
    dataset = xarray.Dataset(
        {
            "temperature": (("time", "lat", "lon"), np.where(numbers % 5 == 0, np.nan, numbers), {"units": "K"}),
            "count": (("lat", "lon"), np.arange(12, dtype="<i4").reshape(3, 4)),
            "flag": (("lat",), np.array([0, 1, 2], dtype="u1")),
            "name": (("lat",), np.array(["a", "bb", "\u00fc"], dtype=object)),
            "total": ((), np.float32(3.5)),
        },
        coords={"time": pandas.date_range("2000-01-01", periods=2), "lat": [0.0, 1, 2], "lon": [0, 90, 180, 270], "level": ((), 7)},
        attrs={"title": "made"},
    )
    dataset["count"].encoding = {"_FillValue": -1}
    dataset["temperature"].encoding = {"chunks": (1, 2, 2)}
    dataset.to_zarr(store, zarr_format=version, consolidated=version == 2)
    # Those who open a store without consolidated metadata are warned.
    return {} if version == 2 else {"consolidated": False}


@pytest.mark.parametrize("decodes", [True, False])
@pytest.mark.parametrize("view", ["v2", "v3", "files"])
@pytest.mark.parametrize("version", [2, 3])
def test_xarray_reads_equal_datasets_in_every_view(version, view, decodes, mounted, tmp_path):
    how = make_dataset(tmp_path / "made.zarr", version)
    views = mounted(tmp_path / "made.zarr").path / ".zarrfs"
    options = {"decode_cf": decodes, "chunks": None}
    original = xarray.open_zarr(tmp_path / "made.zarr", **options, **how).load()
    shown = xarray.open_zarr(views / view, **options, **({"consolidated": False} if view == "files" else {})).load()
    xarray.testing.assert_identical(shown, original)


def test_netcdf_reads_equal_datasets_in_the_v2_view(mounted, tmp_path):
    require(READERS["NCZarr"])
    dataset = xarray.Dataset(
        {"count": (("lat", "lon"), np.arange(12, dtype="<i4").reshape(3, 4), {"units": "1"})},
        coords={"lat": [0.0, 1, 2], "lon": [0, 90, 180, 270]},
    )
    dataset["count"].encoding = {"_FillValue": -1, "chunks": (2, 2)}
    dataset.to_zarr(tmp_path / "made.zarr", zarr_format=3, consolidated=False)
    view = mounted(tmp_path / "made.zarr").path / ".zarrfs/v2"
    # A fill value of another type than the variable's could not be copied.
    done = nccopy(f"file://{view}#mode=zarr,file", tmp_path / "copy.nc")
    assert (done.returncode, done.stderr) == (0, "")
    with xarray.open_dataset(tmp_path / "copy.nc", decode_cf=False) as copy:
        for name, variable in dataset.variables.items():
            assert copy[name].dims == variable.dims and copy[name].dtype == variable.dtype
            assert np.array_equal(copy[name], variable)
        assert copy["count"].attrs["units"] == "1"


# Over the network, and OME-Zarr.


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_copy_from_a_server_that_lists_nothing_is_complete(version, tmp_path):
    made = make_v3(tmp_path / "data")
    zarr.consolidate_metadata(tmp_path / "data", zarr_format=3)
    (tmp_path / "server").mkdir()
    with KeysOnly(tmp_path / "server", tmp_path / "data") as server:
        with mounting.Mount(server.url, environment=places.environment({})) as mount:
            subprocess.run(["cp", "-r", mount.path / ".zarrfs" / version, tmp_path / "copy.zarr"], check=True)
    # A chunk that the server does not have is a file of the fill value.
    sparse = tmp_path / "copy.zarr/sparse" / ("0.0" if version == "v2" else "c/0/0")
    assert np.isnan(np.fromfile(sparse, dtype="<f4")).all()
    opened = zarr.open_consolidated(tmp_path / "copy.zarr", mode="r")
    assert sorted(opened.array_keys()) == sorted(made)
    for name, data in made.items():
        # Bit for bit, since NaN is not equal to itself.
        assert little_endian(np.asarray(opened[name][...])) == little_endian(np.asarray(data)), name


def test_an_image_of_ome_zarr_05_becomes_one_of_04_in_v2(mounted, tmp_path):
    make_image(tmp_path / "image.zarr", "0.5")
    make_image(tmp_path / "old.zarr", "0.4")
    view = mounted(tmp_path / "image.zarr").path / ".zarrfs/v2"
    image = ImageAttrs.model_validate(dict(zarr.open_group(view, mode="r", zarr_format=2).attrs))
    assert [level.path for level in image.multiscales[0].datasets] == ["0", "1", "2"]
    for path in ("", "labels", "labels/cells", "labels/nuclei"):
        attributes = json.loads((view / path / ".zattrs").read_text())
        old = json.loads((tmp_path / "old.zarr" / path / ".zattrs").read_text())
        if path.startswith("labels/"):
            # The version of a label is its own in both.
            old["image-label"]["version"] = attributes["image-label"]["version"]
        assert attributes == old, path
