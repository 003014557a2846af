"""`zarrfs check` and `zarrfs diff --values` on stores of xarray, ome-zarr, tensorstore and zarr-python.

What their own writers make has no error; what their readers refuse after damage has one, which says what mends it.
"""

import json
import shutil
import subprocess

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorstore
import xarray as xr
import zarr
from ome_zarr.format import FormatV04, FormatV05
from ome_zarr.writer import write_image, write_labels

import mounting


def run(*words):
    out = subprocess.run([mounting.program(), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return out.returncode, out.stdout, out.stderr


def findings(store, *options, severity="error"):
    status, out, said = run("check", "--json", *options, store)
    assert status in (0, 1), said
    told = json.loads(out)["findings"]
    assert (status == 1) == any(finding["severity"] == "error" for finding in told)
    return [finding for finding in told if severity in (None, finding["severity"])]


def dataset():
    random = np.random.default_rng(3)
    fields = {
        "t": (("time", "lat", "lon"), random.random((6, 4, 8), "f4"), {"units": "K"}),
        "count": (("time", "lat"), random.integers(0, 99, (6, 4), "i2"), {"_FillValue": np.int16(-9)}),
        "mask": (("lat", "lon"), random.random((4, 8)) < 0.5),
        "name": (("time",), np.array(["a", "bc", "", "d\u00e9", "e", "f"], object)),
        "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
    }
    coordinates = {
        "time": pd.date_range("2020-01-01", periods=6),
        "lat": np.linspace(10, 40, 4),
        "lon": np.linspace(0, 70, 8),
    }
    return xr.Dataset(fields, coordinates)


def write_dataset(place, zarr_format):
    dataset().to_zarr(place, zarr_format=zarr_format, consolidated=zarr_format == 2)


def write_ome(place, zarr_format):
    group = zarr.open_group(place, mode="w", zarr_format=zarr_format)
    version = FormatV04() if zarr_format == 2 else FormatV05()
    image = np.random.default_rng(1).integers(1, 255, (3, 64, 64), "u1")
    write_image(image, group, axes="cyx", fmt=version)
    write_labels(image[0].astype("u2"), group, name="cells", axes="yx", fmt=version)


def write_tensorstore(place, zarr_format):
    for path in ("a", "g/b"):
        kvstore = {"driver": "file", "path": f"{place}/{path}"}
        driver = "zarr" if zarr_format == 2 else "zarr3"
        spec = {"driver": driver, "kvstore": kvstore}
        array = tensorstore.open(spec, dtype=tensorstore.uint16, shape=[20, 30], create=True).result()
        array[...] = np.arange(600, dtype="u2").reshape(20, 30)


def write_groups(place, zarr_format):
    group = zarr.open_group(place, mode="w", zarr_format=zarr_format).create_group("g", attributes={"x": 1})
    group.create_array("a", shape=(10, 10), chunks=(3, 3), dtype="f8")[:] = 1
    group.create_array("b", shape=(10,), chunks=(5,), dtype="i4")[:] = 2
    zarr.consolidate_metadata(place)


def write_anndata(place, zarr_format):
    # Strings as anndata writes them whatever pandas makes of them.
    with pd.option_context("future.infer_string", False):
        made = annotated_data()
    with anndata.settings.override(zarr_write_format=zarr_format):
        made.write_zarr(place)


def annotated_data():
    random = np.random.default_rng(5)
    cells = [f"c{number}" for number in range(6)]
    obs = pd.DataFrame({"n": np.arange(6), "kind": pd.Categorical(list("aabbcc")), "is": [True, False] * 3}, index=np.array(cells, object))
    obs["age"] = pd.array([1, None] * 3, dtype="Int64")
    var = pd.DataFrame({"m": random.random(4)}, index=np.array(["g0", "g1", "g2", "g3"], object))
    made = anndata.AnnData(scipy.sparse.csr_matrix(random.integers(0, 3, (6, 4)).astype("f4")), obs=obs, var=var)
    made.layers["raw"] = made.X.copy()
    made.obsm["pca"] = random.random((6, 2))
    made.obsm["table"] = pd.DataFrame({"u": random.random(6)}, index=obs.index)
    made.varm["loadings"] = random.random((4, 2))
    made.obsp["distances"] = scipy.sparse.csc_matrix(np.eye(6))
    made.uns["settings"] = {"text": "x", "list": np.arange(3)}
    made.raw = made
    return made


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("write", [write_dataset, write_ome, write_tensorstore, write_groups, write_anndata])
def test_stores_of_other_writers_have_no_errors(write, zarr_format, tmp_path):
    write(tmp_path / "s.zarr", zarr_format)
    assert findings(tmp_path / "s.zarr", "--data") == []


def append_was_cut(store):
    zarr.open_array(store / "t").resize((8, 4, 8))


def names_are_gone(store):
    if (store / "t/.zattrs").exists():
        attributes = json.loads((store / "t/.zattrs").read_text())
        del attributes["_ARRAY_DIMENSIONS"]
        (store / "t/.zattrs").write_text(json.dumps(attributes))
    else:
        document = json.loads((store / "t/zarr.json").read_text())
        del document["dimension_names"]
        (store / "t/zarr.json").write_text(json.dumps(document))


def top_is_gone(store):
    for name in ("zarr.json", ".zgroup", ".zattrs", ".zmetadata"):
        (store / name).unlink(missing_ok=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "damage, code, key, words",
    [
        (append_was_cut, "dimension-lengths-differ", "", "t has 8"),
        (names_are_gone, "dimension-names-missing", "t", "cannot open the group"),
        (top_is_gone, "group-implied", "", "the root has no"),
    ],
)
def test_stores_that_xarray_refuses_have_an_error(damage, code, key, words, zarr_format, tmp_path):
    store = tmp_path / "s.zarr"
    write_dataset(store, zarr_format)
    if zarr_format == 2:
        (store / ".zmetadata").unlink()
    assert findings(store) == []
    damage(store)
    with pytest.raises(Exception):
        xr.open_zarr(store, consolidated=False).load()
    found = findings(store)
    assert [(finding["code"], finding["key"]) for finding in found] == [(code, key)]
    assert words in found[0]["message"] and found[0]["remedy"]


def faults(store):
    """Returns errors and warnings."""
    return [finding for finding in findings(store, severity=None) if finding["severity"] != "advice"]


def change(document, edit):
    members = json.loads(document.read_text())
    edit(members)
    document.write_text(json.dumps(members))


def without_copies(store):
    """Takes out consolidated metadata, which would differ after a change."""
    change(store / "zarr.json", lambda members: members.pop("consolidated_metadata", None))


def attribute(path, **members):
    return lambda store: change(store / path / "zarr.json", lambda document: document["attributes"].update(members))


@pytest.mark.parametrize(
    "damage, code, key, words",
    [
        (attribute("time", units="days since epoch"), "attribute-invalid", "time", "decode_times=False"),
        (attribute("time", calendar="gregroian"), "attribute-invalid", "time", "not a CF calendar"),
        (attribute("t", scale_factor="0.1"), "attribute-invalid", "t", "scale_factor is"),
        (lambda store: (store / "t/zarr.json").unlink(), "chunks-undescribed", "t", "no reader finds the array"),
        (lambda store: (store / "t/zarr.json").rename(store / "t/Zarr.json"), "document-miscased", "t/Zarr.json", "only in case"),
        (lambda store: (store / "t/c").rename(store / "t/C"), "orphan-folder", "t/C", "only in case"),
    ],
)
def test_damage_that_changes_a_dataset_for_xarray_is_one_error(damage, code, key, words, tmp_path):
    store = tmp_path / "s.zarr"
    write_dataset(store, 3)
    assert faults(store) == []
    right = xr.open_zarr(store, consolidated=False).load()
    damage(store)
    try:
        assert not xr.open_zarr(store, consolidated=False).load().identical(right)
    except Exception:
        pass
    found = faults(store)
    assert [(finding["severity"], finding["code"], finding["key"]) for finding in found] == [("error", code, key)]
    assert words in found[0]["message"] + found[0]["remedy"]


def shape(path, *lengths):
    return lambda store: change(store / path / "zarr.json", lambda document: document.update(shape=lengths))


@pytest.mark.parametrize(
    "damage, code, key, words",
    [
        (shape("obs/n", 5), "table-lengths-differ", "obs/n", "has 5 elements"),
        (shape("obs/kind/codes", 5), "table-lengths-differ", "obs/kind", "has 5 elements"),
        (shape("X/indptr", 6), "table-lengths-differ", "X", "needs 7"),
        (shape("obsm/pca", 5, 2), "table-lengths-differ", "obsm/pca", "5 rows"),
        (shape("varm/loadings", 3, 2), "table-lengths-differ", "varm/loadings", "3 rows"),
        (attribute("layers/raw", shape=[6, 5]), "table-lengths-differ", "layers/raw", "5 columns"),
        (lambda store: shutil.rmtree(store / "obs/n"), "table-part-missing", "obs", '"n"'),
        (lambda store: shutil.rmtree(store / "obs/_index"), "table-part-missing", "obs", '"_index"'),
        (lambda store: shutil.rmtree(store / "obs/kind/categories"), "table-part-missing", "obs/kind", '"categories"'),
        (lambda store: shutil.rmtree(store / "X/data"), "table-part-missing", "X", '"data"'),
    ],
)
def test_damage_that_anndata_refuses_is_one_error(damage, code, key, words, tmp_path):
    store = tmp_path / "s.zarr"
    write_anndata(store, 3)
    without_copies(store)
    assert findings(store) == []
    anndata.read_zarr(store)
    damage(store)
    with pytest.raises(Exception):
        read = anndata.read_zarr(store)
        # What scipy does not look at when it makes a matrix.
        [matrix.check_format() for matrix in (read.X, read.layers["raw"])]
    found = [finding for finding in findings(store) if not finding["code"].startswith("chunk")]
    assert [(finding["code"], finding["key"]) for finding in found] == [(code, key)]
    assert words in found[0]["message"] and found[0]["remedy"]


def test_the_last_copy_of_a_document_is_kept_by_the_advice(tmp_path):
    store = tmp_path / "s.zarr"
    write_dataset(store, 2)
    (store / "t/.zarray").unlink()
    told = {finding["part"]: finding["remedy"] for finding in findings(store) if finding["code"] == "consolidated-extra"}
    assert told["t/.zarray"].startswith("write the copy to t/.zarray, or remove t and run")
    shutil.rmtree(store / "t")
    told = {finding["part"]: finding["remedy"] for finding in findings(store)}
    assert told == dict.fromkeys(["t/.zarray", "t/.zattrs"], "run zarrfs check --fix consolidated")
    (store / ".zgroup").unlink()
    assert ("group-implied", "") in [(finding["code"], finding["key"]) for finding in findings(store)]


def test_foreign_content_in_place_of_chunks_is_named(tmp_path):
    store = tmp_path / "s.zarr"
    write_dataset(store, 3)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    (store / "t/c/0/0/0").write_text(pointer)
    (store / "lat/c/0").write_text("<!DOCTYPE html>\n<html><body>Please log in</body></html>")
    shutil.copy(store / "lon/zarr.json", store / "count/c/0/0")
    for options in ([], ["--data"]):
        status, out, _ = run("check", *options, store)
        assert status == 1
        lines = [line for line in out.splitlines() if line.startswith("error: ")]
        assert len(lines) == 3, out
        assert "t/c/0/0/0: the chunk is a git-lfs pointer, not data\n    run 'git lfs pull'" in out
        assert "lat/c/0: the chunk is an HTML page, not data" in out
        assert "count/c/0/0: the chunk is a JSON file, not data" in out
    # Of an array whose chunks all are pointers one finding.
    many = zarr.create_array(tmp_path / "many.zarr", shape=(40, 40), chunks=(8, 8), dtype="f4")
    many[...] = 1
    for chunk in (tmp_path / "many.zarr/c").glob("*/*"):
        chunk.write_text(pointer)
    found = findings(tmp_path / "many.zarr", "--data")
    assert [finding["message"][:40] for finding in found] == ["all 25 chunks, such as c/0/0: the chunk "]
    shutil.rmtree(store / "t/c")
    missing = findings(store, severity="warning")
    assert [(finding["code"], finding["key"]) for finding in missing] == [("chunks-missing", "t")]


def test_values_of_a_dataset_in_two_formats_do_not_differ(tmp_path):
    stores = [tmp_path / f"v{zarr_format}.zarr" for zarr_format in (2, 3)]
    for zarr_format, store in zip((2, 3), stores):
        write_dataset(store, zarr_format)
    assert run("diff", "--values", *stores) == (0, "", "")
    assert run("diff", *stores)[0] == 1
    # Other chunks, codecs and data types of one kind.
    other = dataset()
    other["t"] = other["t"].astype("f8")
    shutil.rmtree(stores[0])
    other.to_zarr(stores[0], zarr_format=2, encoding={"t": {"compressors": None, "chunks": (4, 3, 8)}})
    assert run("diff", "--values", *stores) == (0, "", "")
    array = zarr.open_array(stores[1] / "t")
    array[5, 3, 7] = array[5, 3, 7] + 1
    status, out, _ = run("diff", "--values", *stores)
    assert (status, out) == (1, "M array /t\n    [5:6, 3:4, 7:8] 1 element\n")


def test_elements_of_other_types_are_compared_by_value(tmp_path):
    words = np.array(["a", "gr\u00fcn", "", "\U0001f600b"])
    numbers = np.array([[0.0, np.nan], [-0.0, 1.5]])
    cases = [
        ("U5", words, str, words.astype(object), 0),
        ("U5", words, str, np.array(["a", "gr\u00fcn", "", "c"], object), 1),
        (">f4", numbers.astype("f4"), "float64", numbers, 0),
        ("i2", np.array([-3, 7]), "int64", np.array([-3, 7]), 0),
        ("u1", np.array([3, 7]), "float32", np.array([3, 7]), 1),
        ("c8", numbers + 2j, "complex128", numbers + 2j, 0),
    ]
    for number, (of_v2, one, of_v3, other, status) in enumerate(cases):
        stores = [tmp_path / f"{number}-{zarr_format}" for zarr_format in (2, 3)]
        for store, zarr_format, dtype, values in zip(stores, (2, 3), (of_v2, of_v3), (one, other)):
            array = zarr.create_array(store, shape=values.shape, dtype=dtype, chunks=values.shape, zarr_format=zarr_format)
            array[...] = values
        found, out, said = run("diff", "--values", *stores)
        assert found == status, (of_v2, of_v3, out, said)


def test_folders_and_files_of_other_formats_are_named(tmp_path):
    for names, what in [
        (["manifest.ocdbt", "d/0"], "an OCDBT database"),
        (["__schema/x", "__fragments/x"], "a TileDB array"),
    ]:
        folder = tmp_path / what.split()[1] / names[0].split("/")[0]
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"x")
        (found,) = findings(folder)
        assert (found["code"], found["key"]) == ("no-store", "") and what in found["message"] and "read it with" in found["remedy"]
    # Groups of these names are a store all the same.
    for name in ("refs", "snapshots"):
        zarr.open_group(tmp_path / "s.zarr" / name, mode="w").create_array("a", data=np.arange(3))
    (tmp_path / "s.zarr/zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    assert findings(tmp_path / "s.zarr") == []
    for content, what in [
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 or netCDF-4 file"),
        (b'{"zarr_format": 3, "node_type": "group"}', "use the directory that contains the file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run 'git lfs pull'"),
    ]:
        (tmp_path / "file").write_bytes(content)
        for command in ("check", "tree", "info"):
            status, out, said = run(command, tmp_path / "file")
            assert (status, out) == (2, "") and "not a Zarr store, but" in said and what in said, said
