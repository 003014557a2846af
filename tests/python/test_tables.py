"""Tables as text, each read whole by other programs and equal to zarr-python's values, in value and in kind."""

import csv
import io
import json
import os
import shutil
import subprocess
import warnings

import numpy as np
import pytest
import zarr

import mounting
import table_readers
from table_readers import plain
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


def each(mounted, extension):
    """Yields path, name and values of every array of one or two dimensions, which has a file of this format; no other has."""
    files, arrays = mounted
    for name, data in arrays.items():
        path = files / name / f"{name}.{extension}"
        assert path.exists() == (data.ndim <= 2), (name, extension)
        if path.exists():
            assert path.stat().st_size == len(path.read_bytes())
            yield path, name, data


def test_csv_of_arrays_has_the_values_alone(mounted):
    import pandas
    import polars

    for path, name, data in each(mounted, "csv"):
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        assert all(cell == cell.strip() for row in rows for cell in row), name
        if data.dtype.kind not in "iufb":
            assert [row[0] for row in rows] == list(data)
            continue
        frame = polars.read_csv(path, has_header=False, infer_schema_length=None)
        found = [pandas.read_csv(path, header=None, **table_readers.ROUND_TRIP).to_numpy(), frame.rows()]
        if data.dtype.kind == "f":
            found.append(np.genfromtxt(path, delimiter=","))
        for read in found:
            if data.dtype.kind == "f":
                read = [[np.nan if cell is None else cell for cell in row] for row in np.array(read, object).reshape(data.shape[0], -1)]
            np.testing.assert_array_equal(np.array(read, object).reshape(data.shape).astype(data.dtype), data, err_msg=name)


def test_ndjson_of_arrays_has_an_object_a_row(mounted):
    for path, name, data in each(mounted, "ndjson"):
        expected = [plain(value) for value in data.flat]
        if data.dtype.kind == "f":
            expected = [value if np.isfinite(value or 0) else None for value in expected]
        for program, read in table_readers.NDJSON.items():
            if data.dtype.str[1:] == "u8" and program in ("pandas", "pyarrow", "jq") or data.dtype.str[1:] == "i8" and program == "jq":
                # What is beyond 2^63 is a float there; jq has floats alone.
                continue
            if name == "plane_u8" and program == "polars":
                # In lists it makes text of such numbers.
                continue
            [(values, _)] = read(path).values()
            flat = [value for row in values for value in row] if data.ndim == 2 else values
            if data.dtype.kind == "f":
                flat = [None if value is None or value != value else plain(data.dtype.type(value)) for value in flat]
            assert flat == expected, (program, name)
        first = json.loads(path.read_text().splitlines()[0])
        assert list(first) == [name]


COUNT = 50


def columns_of_points():
    """Returns columns of all types by name."""
    columns = {dtype: values(dtype, (COUNT,), 4) for dtype in [*NUMBERS, "f2", "bool"]}
    columns["u8"][3], columns["i8"][3] = 2**64 - 1, -(2**63)
    for dtype in ("f2", "f4", "f8"):
        columns[dtype][1:4] = [np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny]
        columns[dtype][7] = -np.inf
    columns["words"] = np.array([f'{n}, "\u00e9"' if n % 3 else "" for n in range(COUNT)], dtype="U9")
    columns["code"] = np.array([b"c%d" % (n % 2) for n in range(COUNT)], dtype="S4")
    columns["digits"] = np.array([f"{n:03}" for n in range(COUNT)], dtype="U3")
    columns["texts"] = np.resize(np.array(["plain", 'with "quotes"', "a,comma", " \u00e9\u4e2d\U0001f600 ", "", "line\nbreak", "NA", "true", "a\r\nb"], object), COUNT)
    columns["days"] = np.arange(COUNT).astype("M8[D]")
    columns["time, in s"] = (np.arange(COUNT) * 1_000_000).astype("M8[s]")
    columns["time_ns"] = (np.arange(COUNT) * 10**17 + 1).astype("M8[ns]")
    columns["time_ms"] = (np.arange(COUNT) * 10**10 + np.arange(COUNT) % 2).astype("M8[ms]")
    columns["time_ms"][5] = np.datetime64("NaT")
    return columns


TIMES = ["days", "time, in s", "time_ns", "time_ms"]
TEXTS_OF_POINTS = ["words", "code", "digits", "texts"]


@pytest.fixture(scope="module", params=["three", "two", "sharded"])
def points(request, tmp_path_factory):
    """Mounts a group of columns of all types, a store of each kind; returns the folder of its files and the columns."""
    store = tmp_path_factory.mktemp("points") / "points.zarr"
    columns = columns_of_points()
    root = Maker(store, request.param)
    for name, data in columns.items():
        if data.dtype.kind == "O":
            root.create_array(name, shape=data.shape, dtype="string", chunks=(7,))[...] = data
        else:
            root.create_array(name, data=data, chunks=(7,))
    root.root.create_array("crs", data=np.array(0))
    root.root.create_array("plane", data=np.zeros((COUNT, 2)))
    with mounting.Mount(store) as mount:
        yield mount.files, columns


def kind_of(data):
    if data.dtype == "M8[D]":
        return "date"
    return {"i": "int", "u": "int", "f": "float", "b": "bool", "M": "time"}.get(data.dtype.kind, "text")


def expected_of(data):
    if data.dtype.kind == "S":
        data = data.astype(str)
    return [plain(value) for value in data]


def narrowed(found, data):
    """Returns floats in the type of the array: their shortest text is that of this type."""
    if data.dtype.kind != "f":
        return found
    with np.errstate(over="ignore"):
        return [None if value is None else plain(data.dtype.type(value)) for value in found]


def assert_rows_are(path):
    """Checks the form: RFC 4180, a line of names, no spaces, no lines of another length."""
    with open(path, newline="", encoding="utf-8") as file:
        text = file.read()
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len({len(row) for row in rows}) == 1
    numbers = [cell for row in rows[1:] for cell, name in zip(row, rows[0], strict=True) if name not in TEXTS_OF_POINTS]
    assert all(cell == cell.strip() for cell in numbers)
    return rows


@pytest.mark.parametrize("program", table_readers.CSV)
def test_csv_of_a_group_has_the_same_values_and_kinds(points, program):
    files, columns = points
    path = files / "points.csv"
    assert path.stat().st_size == len(path.read_bytes())
    rows = assert_rows_are(path)
    assert len(rows) == COUNT + 1 and rows[0] == sorted(columns)
    assert [row[rows[0].index("texts")] for row in rows[1:]] == list(columns["texts"])
    found = table_readers.CSV[program](path, times=TIMES, texts=TEXTS_OF_POINTS)
    assert list(found) == sorted(columns)
    for name, data in columns.items():
        read, kind = found[name]
        expected, expected_kind = expected_of(data), kind_of(data)
        if program == "pandas" and expected_kind == "date":
            expected_kind = "time"
        if program == "R":
            # Its times and its texts are texts, and an empty one is none.
            if data.dtype.kind in "bM":
                expected_kind = "text"
                expected = [text_of(data, value) or None for value in data]
            elif expected_kind == "text":
                expected = [None if value == "" else value for value in expected]
                expected = [None if value is None else value.replace("\r\n", "\n") for value in expected]
                read = [None if value is None else value.replace("\r\n", "\n") for value in read]
            elif data.dtype.itemsize == 8 and data.dtype.kind in "iu":
                expected, expected_kind = [float(value) for value in expected], kind
            elif kind == "int":
                read = [int(value) for value in read]
            if data.dtype.kind == "f":
                # Its own reading of decimals is off by the last bit at times, and it says so.
                np.testing.assert_allclose(np.array(read, "f8"), np.array(expected, "f8"), rtol=1e-3 if data.dtype == "f2" else 1e-6)
                assert kind == "float"
                continue
        if program == "SQLite":
            kind = expected_kind
            if data.dtype.kind in "iuf":
                read = [None if value == "" else (float if data.dtype.kind == "f" else int)(value) for value in read]
            elif data.dtype.kind in "bM":
                expected = ["" if plain(value) is None else text_of(data, value) for value in data]
        if program == "R" and expected_kind == "int":
            kind = "int"
        if data.dtype == "u8" and program == "R":
            kind = expected_kind
        assert (narrowed(read, data), kind) == (expected, expected_kind), (program, name)
    # What part D1 of the faults counts.
    assert sum(value == "c0" for value in found["code"][0]) == COUNT // 2


def text_of(data, value):
    """Returns a truth or a time as the file has it."""
    if data.dtype.kind == "b":
        return str(bool(value)).lower()
    return str(value) if plain(value) is not None else ""


@pytest.mark.parametrize("program", table_readers.NDJSON)
def test_ndjson_of_a_group_has_the_same_values(points, program):
    files, columns = points
    found = table_readers.NDJSON[program](files / "points.ndjson")
    assert list(found) == sorted(columns)
    for name, data in columns.items():
        if name == "u8" and program in ("pandas", "jq", "pyarrow") or name == "i8" and program == "jq":
            # What is beyond 2^63 is a float there, or an error; jq has floats alone.
            continue
        read, kind = found[name]
        expected = expected_of(data)
        if data.dtype.kind == "f":
            expected = [None if value is None or np.isinf(value) else value for value in expected]
        if data.dtype.kind == "M":
            texts = [None if plain(value) is None else str(value) for value in data]
            read = [None if value is None else plain(np.datetime64(value)) for value in read]
            expected = [None if text is None else plain(np.datetime64(text)) for text in texts]
        elif kind is not None and program != "pandas":
            assert kind == kind_of(data), (program, name)
        assert narrowed(read, data) == expected, (program, name)


def test_an_attribute_says_what_a_table_leaves_out(points, tmp_path):
    files, _ = points
    expected = ["crs: a column needs one dimension, not 0", "plane: a column needs one dimension, not 2"]
    for name in ("points.csv", "points.ndjson"):
        assert os.getxattr(files / name, "user.zarrfs.left_out").decode().splitlines() == expected


@pytest.mark.parametrize("word, data", [
    ("NaN", np.array([1.5, np.nan, 2.5])), ('""', np.array(["2020-01-01", "NaT", "2021-01-01"], "M8[s]")),
])
def test_no_line_of_csv_is_blank(tmp_path, word, data):
    """pandas skips blank lines, so a line with a single missing value has a word for it."""
    root = zarr.open_group(tmp_path / "t.zarr", mode="w")
    root.create_array("a", data=data)
    with mounting.Mount(tmp_path / "t.zarr") as mount:
        assert (mount.files / "a/a.csv").read_text().split()[1] == word
        for program in ("pandas", "DuckDB", "pyarrow"):
            options = {"times": ["a"] if data.dtype.kind == "M" else []}
            if program == "pyarrow":
                from pyarrow import csv as arrow

                read = [plain(value) for value in arrow.read_csv(mount.files / "t.csv")["a"].to_pylist()]
            else:
                read, _ = table_readers.CSV[program](mount.files / "t.csv", **options)["a"]
            assert read == [plain(value) for value in data], program


def observations(pandas):
    """Returns a table with a column of each kind that AnnData has."""
    cells = 300
    numbers = np.arange(cells)
    table = {
        "n_genes": numbers * 7, "score": (numbers / 7).astype("f4"),
        "kind": pandas.Categorical.from_codes(np.where(numbers % 5 == 0, -1, numbers % 3), ["T, x", 'B "1"', "\u00e9"]),
        "level": pandas.Categorical.from_codes(numbers % 4 - 1, [10, 20, 30], ordered=True),
        "counted": pandas.array(np.where(numbers % 7 == 0, None, numbers), dtype="Int64"),
        "is_ok": numbers % 2 == 0,
        "maybe": pandas.array(np.where(numbers % 3 == 0, None, numbers % 2 == 0), dtype="boolean"),
        "note": np.array([f"{n:03}" if n % 2 else "" for n in numbers], dtype=object),
    }
    return pandas.DataFrame(table, index=pandas.Index([f"AAA{n}-1" for n in numbers], dtype=object))


@pytest.fixture(scope="module", params=[2, 3])
def annotated(request, tmp_path_factory):
    """Mounts a store that AnnData wrote; returns the folder of its files and the table of cells."""
    import pandas

    store = tmp_path_factory.mktemp("anndata") / "cells.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # AnnData knows the texts of pandas 2 alone.
        with pandas.option_context("future.infer_string", False, "mode.string_storage", "python"):
            import anndata

            anndata.settings.zarr_write_format = request.param
            table = observations(pandas)
            data = anndata.AnnData(np.zeros((len(table), 3), "f4"), obs=table, obsm={"X_umap": np.ones((len(table), 2))})
            data.strings_to_categoricals = lambda *_: None
            data.write_zarr(store)
    with mounting.Mount(store) as mount:
        yield mount.files, table


def rows_of(table):
    """Returns the columns of a table of pandas as Python has them, the index first."""
    import pandas

    columns = {"_index": list(table.index)}
    for name in table:
        columns[name] = [None if pandas.isna(value) else plain(value) for value in table[name].astype(object)]
    return columns


@pytest.mark.parametrize("program", ["pandas", "polars", "DuckDB", "pyarrow"])
def test_a_table_of_anndata_has_its_index_and_its_categories(annotated, program):
    files, table = annotated
    expected = rows_of(table)
    found = table_readers.CSV[program](files / "obs/obs.csv", texts=["_index", "kind", "note"] if program != "polars" else [])
    assert list(found) == list(expected)
    for name, values in expected.items():
        read = found[name][0]
        if name == "score":
            read = [plain(np.float32(value)) for value in read]
        if program in ("pandas", "pyarrow") and name == "kind":
            # These tell no empty text from none where a column is text.
            read = [value or None for value in read]
        assert read == values, (program, name)
    rows = [json.loads(line) for line in (files / "obs/obs.ndjson").read_text().splitlines()]
    for name, values in expected.items():
        read = [row[name] for row in rows]
        assert ([plain(np.float32(value)) for value in read] if name == "score" else read) == values, name
    left_out = os.getxattr(files / "obs/obs.csv", "user.zarrfs.left_out").decode()
    assert left_out == "the order of the categories of level: a table has only values\n"
    [umap] = set((files / "obsm/X_umap/X_umap.csv").read_text().splitlines())
    assert umap == "1.0,1.0"


def series(count=60):
    """Returns a dataset of one dimension, with each kind of variable that CF has: packed numbers, times, durations, truth
    values and texts."""
    import xarray

    numbers, random = np.arange(count), np.random.default_rng(3)
    times = np.datetime64("2019-12-20", "ns") + numbers * np.timedelta64(12, "h")
    made = xarray.Dataset(
        {
            "temp": ("time", np.where(numbers % 7 == 3, np.nan, random.random(count) * 30), {"valid_min": -1000}),
            "level": ("time", random.random(count).astype("f4")),
            "counted": ("time", numbers * 3),
            "wet": ("time", numbers % 2 == 0),
            "note": ("time", np.array([f'n{number}, "q"' if number % 3 else "" for number in numbers], object)),
            "lead": ("time", (numbers * 6).astype("m8[h]").astype("m8[ns]")),
            "field": (("time", "lat"), random.random((count, 3))),
        },
        {"time": times, "valid_time": ("time", times + np.timedelta64(90, "m")), "lat": [10.0, 20.0, 30.0]},
    )
    made["temp"].encoding.update(dtype="i2", scale_factor=0.01, add_offset=5.0, _FillValue=-32767)
    made["counted"].encoding.update(_FillValue=np.int64(9))
    for name in made.variables:
        made[name].encoding["chunks"] = made[name].shape if name == "lat" else (7, *made[name].shape[1:])
    return made


# Selections of a group, and the same of xarray. A table needs all but one dimension to be gone.
PARTS = {
    "lat=20": lambda data: data.sel(lat=20),
    "lat=20,time=2020-01": lambda data: data.sel(lat=20, time="2020-01"),
    "lat=#0,time=#5:20:3": lambda data: data.isel(lat=0, time=slice(5, 20, 3)),
    "lat=#0,time=#::-4": lambda data: data.isel(lat=0, time=slice(None, None, -4)),
    "time=#-1": lambda data: data.isel(time=-1),
}


@pytest.fixture(scope="module", params=[2, 3])
def meant(request, tmp_path_factory):
    """Mounts a store of xarray; returns the mount and the store."""
    store = tmp_path_factory.mktemp("series") / "s.zarr"
    series().to_zarr(store, zarr_format=request.param, consolidated=False)
    with mounting.Mount(store) as mount:
        yield mount, store


def frame_of(part):
    """Returns what pandas has of a dataset, as a file can say it: durations are numbers, and scalars are not in it."""
    frame = part.drop_vars([name for name in part.variables if part[name].ndim != 1]).to_dataframe().reset_index()
    for name in frame:
        if frame[name].dtype.kind == "m":
            frame[name] = frame[name].astype("m8[ns]").astype("i8")
    return frame[sorted(frame)]


@pytest.mark.parametrize("selection", PARTS)
def test_a_selection_of_a_group_is_the_table_that_xarray_makes(meant, selection):
    import pandas
    import polars
    import xarray

    mount, store = meant
    decoded = xarray.open_zarr(store, consolidated=False, decode_timedelta=True)
    stored = xarray.open_zarr(store, consolidated=False, decode_cf=False)
    # What labels select is seen in the decoded dataset alone.
    numbered = decoded.assign(row=("time", np.arange(decoded.sizes["time"])), column=("lat", np.arange(3)))
    part = PARTS[selection](numbered)
    for end, data in ((".cf", part.drop_vars(["row", "column"])), ("", stored.isel(time=part["row"].values, lat=part["column"].values))):
        expected = frame_of(data.load())
        path = mount.files / f"s@{selection}{end}.csv"
        times = [name for name in expected if expected[name].dtype.kind == "M"]
        texts = [name for name in expected if name == "note"]
        found = pandas.read_csv(path, parse_dates=times, keep_default_na=False, na_values=dict.fromkeys(set(expected) - set(texts), [""]),
                                dtype=dict.fromkeys(texts, "str"), **table_readers.ROUND_TRIP)
        # Text has no width of numbers.
        kinds = {name: expected[name].dtype for name in expected if expected[name].dtype.kind in "if"}
        assert all(found[name].dtype.kind == kind.kind for name, kind in kinds.items())
        kinds |= dict.fromkeys(times, "M8[ns]") | dict.fromkeys(texts, object)
        pandas.testing.assert_frame_equal(found.astype(kinds), expected.astype(kinds))
        path = path.with_suffix(".ndjson")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [list(line) for line in lines] == [list(expected)] * len(expected)
        read = polars.read_ndjson(path, infer_schema_length=None)
        for name in expected:
            values = [None if pandas.isna(value) else plain(value) for value in expected[name]]
            found = [np.datetime64(line[name], "us") for line in lines] if name in times else read[name].to_list()
            values = [np.datetime64(value, "us") for value in values] if name in times else values
            assert narrowed(found, np.array(expected[name])) == values, name


def test_the_table_of_a_group_has_decoded_values(tmp_path):
    """`zarrfs cp` and the file of that name give the same table, and its values equal those of xarray."""
    import pandas
    import xarray

    store = tmp_path / "s.zarr"
    series().drop_vars(["field", "lat"]).to_zarr(store, zarr_format=3, consolidated=False)
    expected = frame_of(xarray.open_zarr(store, consolidated=False, decode_timedelta=True).load())
    done = mounting.zarrfs("cp", store, tmp_path / "s.cf.csv")
    assert done.stderr.splitlines() == [
        "zarrfs: the file leaves out the unit of lead: durations are written as numbers of ns"
    ]
    found = pandas.read_csv(tmp_path / "s.cf.csv", parse_dates=["time", "valid_time"], **table_readers.ROUND_TRIP)
    assert list(found) == list(expected)
    assert list(found["temp"].dropna()) == list(expected["temp"].dropna()) and found["temp"].isna().sum() == 9
    assert list(found["time"]) == list(expected["time"]) and found["counted"].isna().sum() == 1
    with mounting.Mount(store) as mount:
        for end in (".cf.csv", ".cf.ndjson", "@time=2020-01-02.cf.csv"):
            path = mount.files / f"s{end}"
            assert path.stat().st_size == len(path.read_bytes())
        assert (mount.files / "s.cf.csv").read_bytes() == (tmp_path / "s.cf.csv").read_bytes()
        assert len((mount.files / "s@time=2020-01-02.cf.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("name, why", [
    ("s@time=#3,lat=#0.csv", "no array has a dimension; select a slice such as #0:1"),
    ("s@time=#0:3.csv", "all columns must have the same length and dimension: lat has the dimension lat, and counted has time"),
    ("s.cf.csv", "all columns must have the same length and dimension: lat has 3 elements, and counted has 60"),
    ("s@0:3.csv", "name the dimensions of a group, such as time=2020-01 or x=#0"),
    ("s@step=0:3.cf.csv", "no dimension named 'step'; the dimensions are"),
    ("s@time=1850,lat=20.csv", "no element is labelled '1850'; the labels are from 2019-12-20T00:00:00 to"),
])
def test_an_invalid_table_has_no_file_and_a_reason(meant, name, why):
    mount, _ = meant
    path = mount.files / name
    assert not path.exists()
    assert why in (mount.path / ".zarrfs/errors").read_text()


def test_a_table_of_anndata_has_no_cf_values(annotated):
    """In v2 the fill value 0 would mean a missing value."""
    files, _ = annotated
    assert (files / "obs/obs.csv").exists() and not (files / "obs/obs.cf.csv").exists()
    assert "AnnData tables have no CF attributes to decode; use .csv for the stored values" in (files.parent / "errors").read_text()


OBSERVED_IN_R = """
table <- read.csv(commandArgs(TRUE)[1], stringsAsFactors = TRUE, na.strings = "", colClasses = c(note = "character", X_index = "character"))
cat("kinds", sapply(table, class), sep = "\\t"); cat("\\n")
cat("missing", sapply(table, function(column) sum(is.na(column))), sep = "\\t"); cat("\\n")
for (name in c("kind", "level", "is_ok")) {
    counts <- table(table[[name]])
    cat(name, names(counts), counts, sep = "\\t"); cat("\\n")
}
cat("sums", sprintf("%.0f", c(sum(table$n_genes), sum(table$counted, na.rm = TRUE))), sep = "\\t"); cat("\\n")
"""


def test_r_reads_a_table_of_anndata(annotated):
    """Categories are factors with the right counts, and missing values are NA."""
    table_readers.needs.require("Rscript", shutil.which("Rscript"), source=" (scripts/setup tools installs it)")
    files, table = annotated
    done = subprocess.run(["Rscript", "--vanilla", "-e", OBSERVED_IN_R, files / "obs/obs.csv"], capture_output=True, text=True, check=True)
    found = {line.split("\t")[0]: line.split("\t")[1:] for line in done.stdout.splitlines()}
    kinds = {"n_genes": "integer", "score": "numeric", "kind": "factor", "level": "integer", "counted": "integer", "is_ok": "factor",
             "maybe": "factor", "note": "character"}
    assert found["kinds"] == ["character", *(kinds[name] for name in table)]
    empty = {name: (table[name] == "").sum() if name == "note" else table[name].isna().sum() for name in table}
    assert found["missing"] == ["0", *(str(empty[name]) for name in table)]
    for name in ("kind", "level", "is_ok"):
        counts = {str(value).lower() if name == "is_ok" else str(value): count for value, count in table[name].value_counts().items()}
        half = len(found[name]) // 2
        assert dict(zip(found[name][:half], map(int, found[name][half:]), strict=True)) == counts, name
    assert found["sums"] == [str(table["n_genes"].sum()), str(table["counted"].sum())]


TIMES_IN_R = """
table <- read.csv(commandArgs(TRUE)[1], check.names = FALSE, na.strings = "", encoding = "UTF-8")
show <- function(name, seconds) { cat(name, ifelse(is.na(seconds), "NA", sprintf("%.3f", seconds)), sep = "\\t"); cat("\\n") }
show("days", as.numeric(as.Date(table$days)) * 86400)
for (name in c("time, in s", "time_ms", "time_ns")) show(name, as.numeric(as.POSIXct(table[[name]], tz = "UTC", format = "%Y-%m-%dT%H:%M:%OS")))
"""


def test_r_reads_times_as_times(points):
    table_readers.needs.require("Rscript", shutil.which("Rscript"), source=" (scripts/setup tools installs it)")
    files, columns = points
    done = subprocess.run(["Rscript", "--vanilla", "-e", TIMES_IN_R, files / "points.csv"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name, *seconds = line.split("\t")
        expected = columns[name].astype("M8[ns]")
        assert [value == "NA" for value in seconds] == list(np.isnat(expected)), name
        found = np.array([float(value) for value in seconds if value != "NA"])
        np.testing.assert_allclose(found, expected[~np.isnat(expected)].astype("i8") / 1e9, rtol=0, atol=2e-3, err_msg=name)
    assert len(done.stdout.splitlines()) == len(TIMES)


def test_a_changed_chunk_changes_the_table(tmp_path):
    store = tmp_path / "t.zarr"
    root = zarr.open_group(store, mode="w")
    array = root.create_array("a", data=np.arange(6), chunks=(3,))
    root.create_array("b", data=np.arange(6) * 10, chunks=(2,))
    with mounting.Mount(store) as mount:
        path = mount.files / "t.csv"
        assert path.read_text() == "a,b\n0,0\n1,10\n2,20\n3,30\n4,40\n5,50\n"
        array[4] = 1234
        size = len("a,b\n0,0\n1,10\n2,20\n3,30\n1234,40\n5,50\n")
        assert mounting.wait_until(lambda: path.stat().st_size == size)
        assert path.read_text().splitlines()[5] == "1234,40"


def test_a_table_too_large_for_memory_is_an_error_with_advice(tmp_path):
    root = zarr.open_group(tmp_path / "t.zarr", mode="w")
    root.create_array("a", shape=(40_000_000,), dtype="i8", chunks=(1_000_000,), fill_value=7)
    root.create_array("b", shape=(40_000_000,), dtype="i8", chunks=(1_000_000,), fill_value=7)
    done = mounting.zarrfs("cp", "--memory", "64M", tmp_path / "t.zarr", tmp_path / "t.csv", check=False)
    assert done.returncode == 2 and "half of --memory 64M: give more --memory, or select a part, such as a@0:1000" in done.stderr
    done = mounting.zarrfs("cp", "--memory", "64M", f"{tmp_path}/t.zarr/a@:3", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "7\n7\n7\n"
