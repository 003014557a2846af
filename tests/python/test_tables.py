"""Decoded files as text, each read whole by two programs and equal to zarr-python's values."""

import csv
import json
import shutil
import subprocess

import numpy as np
import pytest
import zarr

import mounting
import needs
from test_formats import NUMBERS, values

TEXTS = np.array(["plain", 'with "quotes"', "a,comma", "\u00e9\u4e2d", "", "line\nbreak"], dtype=object)


class Maker:
    """A store of one kind: final v3, v2 in Fortran's order and big-endian, or shards of big-endian chunks."""

    def __init__(self, folder, kind):
        self.kind = kind
        self.root = zarr.open_group(folder, mode="w", zarr_format=2 if kind == "two" else 3)

    def create_array(self, name, data=None, chunks=None, **more):
        if data is None or data.dtype.kind not in "iuf":
            return self.root.create_array(name, data=data, chunks=chunks, **more)
        if self.kind == "two":
            more |= {"dtype": data.dtype.newbyteorder(">"), "config": {"order": "F"}}
        elif self.kind == "sharded":
            big = zarr.codecs.BytesCodec(endian="big") if data.itemsize > 1 else "auto"
            more |= {"dtype": data.dtype, "shards": tuple(2 * length for length in chunks), "serializer": big}
        else:
            more["dtype"] = data.dtype
        array = self.root.create_array(name, shape=data.shape, chunks=chunks, **more)
        array[...] = data
        return array


@pytest.fixture(scope="module", params=["three", "two", "sharded"])
def mounted(request, tmp_path_factory):
    """Mounts a store of lines and planes of all types; returns the files and the values by name."""
    store = tmp_path_factory.mktemp("tables") / "t.zarr"
    root = Maker(store, request.param)
    for dtype in [*NUMBERS, "f2", "bool"]:
        for name, shape, chunks in (("line", (101,), (40,)), ("plane", (13, 7), (4, 3)), ("cube", (3, 4, 5), (2, 4, 2))):
            data = values(dtype, shape, 3)
            if data.dtype.kind == "f":
                data.flat[[1, 2, 3]] = [np.nan, np.finfo(data.dtype).max, np.finfo(data.dtype).tiny]
            root.create_array(f"{name}_{dtype}", data=data, chunks=chunks)
    root.create_array("texts", shape=(6,), dtype="string", chunks=(4,))[...] = TEXTS
    root.create_array("infinite", data=np.array([np.inf, -np.inf, 1.5]), chunks=(2,))
    with mounting.Mount(store) as mount:
        yield mount.files, {name: native(node[...]) for name, node in root.root.members()}


def native(data):
    """Returns values in the byte order of this machine."""
    return data.astype(data.dtype.newbyteorder("=")) if data.dtype.kind in "iuf" else data


def each(mounted, extension, expects):
    """Yields path, name and values of every array that has a file of this format; `expects` says which must."""
    files, arrays = mounted
    count = 0
    for name, data in arrays.items():
        path = files / name / f"{name}.{extension}"
        assert path.exists() == bool(expects(name, data)), (name, extension)
        if path.exists() and name != "texts":
            count += 1
            assert path.stat().st_size == len(path.read_bytes())
            yield path, name, data
    assert count >= 3


def is_table(name, data):
    return data.ndim <= 2


def test_csv(mounted):
    import pandas

    for path, name, data in each(mounted, "csv", is_table):
        frame = pandas.read_csv(path, header=None, float_precision="round_trip", skipinitialspace=True)
        found = frame.to_numpy().reshape(data.shape)
        np.testing.assert_array_equal(found.astype(data.dtype), data, err_msg=name)
        if data.dtype.kind in "if" and data.dtype != "f2":
            flat = f".mode csv\n.import '{path}' t\n.mode json\nselect * from t;"
            header = ",".join(f"c{i}" for i in range(data.shape[1] if data.ndim == 2 else 1))
            table = f"create table t({', '.join(c + ' real' if data.dtype.kind == 'f' else c + ' integer' for c in header.split(','))});\n"
            text = subprocess.run(["sqlite3"], input=table + flat, capture_output=True, text=True, check=True).stdout
            rows = [list(row.values()) for row in json.loads(text)]
            rows = np.array([[np.nan if isinstance(v, str) and v.strip() in ("", "NaN") else float(v) if data.dtype.kind == "f" else int(v)
                              for v in row] for row in rows]).reshape(data.shape)
            if data.dtype.kind == "f":
                np.testing.assert_allclose(rows, data.astype("f8"), rtol=1e-7 if data.dtype == "f4" else 1e-14, err_msg=name)
            else:
                np.testing.assert_array_equal(rows.astype(data.dtype), data, err_msg=name)
    files, _ = mounted
    with open(files / "texts/texts.csv", newline="", encoding="utf-8") as opened:
        rows = list(csv.reader(opened))
    assert [row[0] for row in rows] == list(TEXTS)


READ_CSV = """
for (path in readLines(file("stdin"))) {
    table <- read.csv(path, header = FALSE, strip.white = TRUE, na.strings = c("", "NaN"))
    columns <- lapply(table, function(column) if (is.character(column)) as.numeric(column == "true") else as.numeric(column))
    cat(dim(table), sprintf("%a", unlist(columns)), "\\n")
}
"""


def test_csv_in_r(mounted):
    needs.require("Rscript", shutil.which("Rscript"), source=" (scripts/setup tools installs it)")
    # R has floats of eight bytes alone.
    found = [(path, data) for path, name, data in each(mounted, "csv", is_table) if data.itemsize < 8 or data.dtype.kind == "f"]
    paths = "".join(f"{path}\n" for path, _ in found)
    done = subprocess.run(["Rscript", "--vanilla", "-e", READ_CSV], input=paths, capture_output=True, text=True, check=True)
    for (path, data), line in zip(found, done.stdout.splitlines(), strict=True):
        rows, columns, *numbers = line.split()
        assert (int(rows), int(columns)) == (data.shape if data.ndim == 2 else (len(data), 1)), path
        read = np.array([np.nan if number in ("NA", "NaN") else float.fromhex(number) for number in numbers])
        # Its own reading of decimals is off by the last bit at times, and it says so.
        np.testing.assert_allclose(read, data.flatten("F").astype("f8"), rtol=1e-7 if data.dtype in ("f2", "f4") else 1e-15, err_msg=str(path))


def in_duckdb(path, kind):
    """Returns the rows of a file of lines of JSON, of values or lists of a type of SQL."""
    import duckdb

    columns = f"{{'json': '{kind}'}}"
    query = f"select json from read_json('{path}', format='newline_delimited', records=false, columns={columns})"
    return [row for row, in duckdb.sql(query).fetchall()]


def test_ndjson_in_duckdb(mounted):
    names = {"i1": "TINYINT", "i2": "SMALLINT", "i4": "INTEGER", "i8": "BIGINT", "u1": "UTINYINT", "u2": "USMALLINT", "u4": "UINTEGER",
             "u8": "UBIGINT", "f2": "FLOAT", "f4": "FLOAT", "f8": "DOUBLE", "b1": "BOOLEAN"}
    for path, name, data in each(mounted, "ndjson", is_table):
        kind = names[data.dtype.str[1:]]
        rows = in_duckdb(path, kind + "[]" if data.ndim == 2 else kind)
        expected = data
        if data.dtype.kind == "f":
            rows = np.array(rows, dtype="f8")
            # What JSON lacks is null.
            expected = np.where(np.isfinite(data), data, np.nan)
        # Of all integers of eight bytes numpy would make floats.
        read = np.array(rows, object if data.dtype.kind in "iu" else None).astype(data.dtype)
        np.testing.assert_array_equal(read, expected, err_msg=name)
    files, _ = mounted
    assert in_duckdb(files / "texts/texts.ndjson", "VARCHAR") == list(TEXTS)


@pytest.mark.parametrize("word, data", [
    ("NaN", np.array([1.5, np.nan, 2.5])), ("NaT", np.array(["2020-01-01", "NaT", "2021-01-01"], "M8[s]")),
])
def test_no_line_of_csv_is_blank(tmp_path, word, data):
    """pandas passes over blank lines, so a line of one value that is none has a word for it."""
    import pandas

    root = zarr.open_group(tmp_path / "t.zarr", mode="w")
    root.create_array("a", data=data)
    with mounting.Mount(tmp_path / "t.zarr") as mount:
        line = pandas.read_csv(mount.files / "a/a.csv", header=None, skipinitialspace=True)[0]
        column = pandas.read_csv(mount.files / "t.csv", skipinitialspace=True)["a"]
        assert (mount.files / "a/a.csv").read_text().split()[1] == word
    for found in (line, column):
        np.testing.assert_array_equal(found.to_numpy().astype(data.dtype), data)


def test_ndjson(mounted):
    for path, name, data in each(mounted, "ndjson", is_table):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        expected = data.astype(object)
        if data.dtype.kind == "f":
            expected[~np.isfinite(data)] = None
        found = np.array(rows, dtype=object)
        assert found.shape == data.shape
        same = found == expected if data.dtype.kind != "f" else np.array(
            [(a is None and b is None) or data.dtype.type(a) == data.dtype.type(b) for a, b in zip(found.flat, expected.flat)])
        assert same.all(), name
        if name in ("plane_i4", "plane_u2", "line_u1", "plane_bool"):
            text = subprocess.run(["jq", "-c", "."], stdin=open(path), capture_output=True, text=True, check=True).stdout
            assert [json.loads(line) for line in text.splitlines()] == data.tolist()
    files, _ = mounted
    assert [json.loads(line) for line in (files / "texts/texts.ndjson").read_text().splitlines()] == list(TEXTS)


@pytest.fixture(scope="module", params=["three", "two", "sharded"])
def points(request, tmp_path_factory):
    """Mounts a group of columns of all types, a store of each kind; returns the folder of its files and the columns."""
    store = tmp_path_factory.mktemp("points") / "points.zarr"
    count = 50
    columns = {dtype: values(dtype, (count,), 4) for dtype in [*NUMBERS, "f2", "bool"]}
    columns["words"] = np.array([f'{n}, "\u00e9"' if n % 3 else "" for n in range(count)], dtype="U9")
    columns["codes"] = np.array([b"c%d" % n for n in range(count)], dtype="S4")
    columns["time, in s"] = (np.arange(count) * 1_000_000).astype("M8[s]")
    columns["time_ns"] = (np.arange(count) * 10**17 + 1).astype("M8[ns]")
    root = Maker(store, request.param)
    for name, data in columns.items():
        root.create_array(name, data=data, chunks=(7,))
    root.root.create_array("crs", data=np.array(0))
    with mounting.Mount(store) as mount:
        yield mount.files, columns


def test_csv_of_a_group(points):
    import pandas

    files, columns = points
    frame = pandas.read_csv(files / "points.csv", skipinitialspace=True, keep_default_na=False, float_precision="round_trip")
    assert list(frame) == sorted(columns)
    for name, data in columns.items():
        expected = data.astype(str) if data.dtype.kind == "S" else data
        read = frame[name].to_numpy()
        assert np.array_equal(read.astype(expected.dtype), expected), name
    with open(files / "points.csv", newline="", encoding="utf-8") as opened:
        rows = list(csv.reader(opened, skipinitialspace=True))
    assert len(rows) == 51 and {len(row) for row in rows} == {len(columns)}
    assert [row[rows[0].index("words")] for row in rows[1:]] == list(columns["words"])


def test_ndjson_of_a_group(points):
    files, columns = points
    rows = [json.loads(line) for line in (files / "points.ndjson").read_text().splitlines()]
    for name, data in columns.items():
        expected = data.astype(str) if data.dtype.kind == "S" else data
        assert np.array_equal(np.array([row[name] for row in rows], dtype=expected.dtype), expected), name
    # DuckDB finds names and types by itself.
    import duckdb

    table = duckdb.sql(f"select * from read_json('{files / 'points.ndjson'}', format='newline_delimited')")
    assert set(table.columns) == set(columns)
    read = dict(zip(table.columns, zip(*table.fetchall(), strict=True), strict=True))
    for name, data in columns.items():
        if data.dtype.kind == "M":
            # Its times have microseconds, and others are texts.
            is_text = data.dtype == "M8[ns]"
            expected = data.astype(str).tolist() if is_text else data.astype("M8[us]").tolist()
        else:
            expected = (data.astype(str) if data.dtype.kind == "S" else data).tolist()
        found = np.array(read[name], data.dtype).tolist() if data.dtype.kind == "f" else list(read[name])
        assert found == expected, name
    done = subprocess.run(["jq", "-c", ".i4", files / "points.ndjson"], capture_output=True, check=True, text=True)
    assert [int(line) for line in done.stdout.split()] == columns["i4"].tolist()


def test_csv_of_a_group_in_r(points):
    needs.require("Rscript", shutil.which("Rscript"), source=" (scripts/setup tools installs it)")
    files, columns = points
    script = "table <- read.csv(file('stdin'), strip.white = TRUE, check.names = FALSE); " \
             "for (name in names(table)) cat(name, '|', paste(format(table[[name]], digits = 17, trim = TRUE), collapse = '|'), '\\n', sep = '')"
    with open(files / "points.csv", encoding="utf-8") as file:
        done = subprocess.run(["Rscript", "--vanilla", "-e", script], stdin=file, capture_output=True, text=True, check=True)
    read = {name: values for name, *values in (line.split("|") for line in done.stdout.splitlines())}
    assert list(read) == sorted(columns)
    for name, data in columns.items():
        if data.dtype.kind in "iuf" and data.itemsize < 8 or data.dtype == "f8":
            np.testing.assert_allclose(np.array(read[name], "f8"), data.astype("f8"), rtol=1e-7 if data.dtype in ("f2", "f4") else 1e-15, err_msg=name)
        elif data.dtype.kind in "SM":
            # Short texts have blanks behind them, up to the width of the longest.
            assert [word.strip() for word in read[name]] == data.astype(str).tolist(), name
        elif data.dtype == bool:
            assert [word.strip() for word in read[name]] == [str(value).lower() for value in data], name
