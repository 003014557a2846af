"""Decoded files as text, MATLAB's and sound, each read whole by two programs and equal to zarr-python's values."""

import csv
import json
import re
import shutil
import subprocess
import wave

import numpy as np
import pytest
import zarr

import mounting
import needs
import programs
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
            attributes = {"sampling_rate": 44100, "units": "V"}
            root.create_array(f"{name}_{dtype}", data=data, chunks=chunks, attributes=attributes)
    root.create_array("texts", shape=(6,), dtype="string", chunks=(4,))[...] = TEXTS
    root.create_array("channels", data=values("i2", (2, 900), 5), chunks=(2, 400), attributes={"sample_rate": 8000.0})
    root.create_array("colours", data=values("u1", (20, 30, 3), 6), chunks=(8, 30, 3))
    root.create_array("large", data=values("f4", (3, 1500, 40), 7), chunks=(1, 300, 40), fill_value=-1e9)
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


def test_mat(mounted):
    import mat4py
    import scipy.io

    def expects(name, data):
        return data.dtype != "f2"

    for path, name, data in each(mounted, "mat", expects):
        found = scipy.io.loadmat(path, chars_as_strings=False)[name]
        expected = data.reshape(-1, 1) if data.ndim == 1 else data
        assert found.shape == expected.shape, name
        np.testing.assert_array_equal(found, expected, err_msg=name)
        # mat4py has neither logical matrices nor more than two dimensions.
        if data.ndim == 2 and data.dtype != bool:
            found = np.array(mat4py.loadmat(str(path))[name], dtype=data.dtype)
            np.testing.assert_array_equal(found, data, err_msg=name)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Mounts a store of texts of every kind; returns the files and the texts by name, as lists of rows."""
    store = tmp_path_factory.mktemp("texts") / "t.zarr"
    root = zarr.open_group(store, mode="w")
    line, plane = list(TEXTS), [list(TEXTS[:3]), list(TEXTS[3:])]
    root.create_array("line", shape=(6,), dtype="string", chunks=(4,))[...] = TEXTS
    root.create_array("plane", shape=(2, 3), dtype="string", chunks=(1, 2))[...] = TEXTS.reshape(2, 3)
    root.create_array("one", shape=(), dtype="string")[...] = "only"
    root.create_array("fixed", data=np.array(plane, "U14"), chunks=(2, 2))
    root.create_array("codes", data=np.array([b"c1", b"", b"code"]), chunks=(2,))
    with mounting.Mount(store) as mount:
        yield mount.files, {"line": line, "plane": plane, "one": ["only"], "fixed": plane, "codes": ["c1", "", "code"]}


def as_cells(rows):
    """Returns texts as an array of two dimensions, a column if there is one."""
    cells = np.array(rows, dtype=object)
    return cells if cells.ndim == 2 else cells.reshape(-1, 1)


def test_texts_are_cells_of_mat(texts):
    import scipy.io

    files, arrays = texts
    for name, rows in arrays.items():
        path, expected = files / name / f"{name}.mat", as_cells(rows)
        assert path.stat().st_size == len(path.read_bytes())
        cells = scipy.io.loadmat(path)[name]
        assert cells.shape == expected.shape, name
        for found, text in zip(cells.flat, expected.flat, strict=True):
            assert "".join(found) == text, name
    cells = scipy.io.loadmat(files / "plane" / "plane@1:,:2.mat")["plane"]
    assert ["".join(cell) for cell in cells.flat] == list(TEXTS[3:5])


def test_octave_reads_mat(mounted, texts):
    """Octave writes what it has read as JSON: all values, those of numbers as their bytes."""
    needs.require("octave", shutil.which("octave-cli") is not None)
    files, arrays = mounted
    numbers = {name: data for name, data in arrays.items() if (files / name / f"{name}.mat").exists() and name != "texts"}
    lines = [f"load('{files / name / name}.mat'); v = {name}; bytes = v(:); if islogical(bytes) bytes = uint8(bytes); end; "
             f"printf('%s [', '{name} ' ); printf('%d ', size(v)); printf('] %s ', class(v)); "
             "printf('%02x', typecast(bytes, 'uint8')); printf('\\n');" for name in numbers]
    words, of_texts = texts
    for name in of_texts:
        lines.append(f"load('{words / name / name}.mat'); v = {name}; printf('{name} [' ); printf('%d ', size(v)); "
                     "printf('] cell '); for i = 1:numel(v) printf('%02x', uint8(deblank(v{i}))); printf(','); end; printf('\\n');")
    done = subprocess.run(["octave-cli", "--norc", "--no-history"], input="\n".join(lines), capture_output=True, text=True, check=True)
    read = {}
    for line in done.stdout.splitlines():
        name, shape, kind, values = re.fullmatch(r"(\w+) *\[([\d ]+)\] (\w+) ?(.*)", line).groups()
        read[name] = [int(length) for length in shape.split()], kind, values
    for name, data in numbers.items():
        shape, kind, values = read[name]
        expected = data.reshape(-1, 1) if data.ndim == 1 else data
        assert tuple(shape) == expected.shape, name
        names = {"bool": "logical", "float32": "single", "float64": "double"}
        assert kind == names.get(data.dtype.name, data.dtype.name), name
        assert bytes.fromhex(values) == expected.tobytes("F"), name
    for name, rows in of_texts.items():
        shape, kind, values = read[name]
        expected = as_cells(rows)
        assert (tuple(shape), kind) == (expected.shape, "cell"), name
        found = [bytes.fromhex(value).decode() for value in values.split(",")[:-1]]
        assert found == [text.rstrip() for text in expected.flatten("F")], name


def test_wav(mounted):
    import scipy.io.wavfile
    import soundfile

    types = ["i1", "i2", "i4", "u1", "f4", "f8"]

    def expects(name, data):
        return name == "channels" or (name.startswith(("line", "plane")) and name.split("_")[1] in types)

    for path, name, data in each(mounted, "wav", expects):
        rate, found = scipy.io.wavfile.read(path)
        assert rate == (8000 if name == "channels" else 44100)
        expected = data.T if name == "channels" else data
        if data.dtype == "i1":
            expected = (expected.astype("i2") + 128).astype("u1")
        np.testing.assert_array_equal(found, expected, err_msg=name)
        if data.dtype in ("i2", "i4", "f4", "f8"):
            kind = {"i2": "int16", "i4": "int32", "f4": "float32", "f8": "float64"}[data.dtype.str[1:]]
            found, rate = soundfile.read(path, dtype=kind)
            np.testing.assert_array_equal(found, expected, err_msg=name)
        elif data.dtype.kind in "iu":
            with wave.open(str(path)) as opened:
                found = np.frombuffer(opened.readframes(-1), expected.dtype).reshape(expected.shape)
            np.testing.assert_array_equal(found, expected, err_msg=name)
        if data.dtype.kind in "iu":
            np.testing.assert_array_equal(in_sox(path, expected.dtype).reshape(expected.shape), expected, err_msg=name)
        np.testing.assert_array_equal(samples_in_ffmpeg(path, expected.dtype).reshape(expected.shape), expected, err_msg=name)
    files, _ = mounted
    rate, found = scipy.io.wavfile.read(files / "line_i2" / "line_i2@::2.wav")
    assert rate == 22050 and len(found) == 51
    assert not (files / "infinite" / "infinite.wav").exists()


def in_ffmpeg(path, *form):
    """Returns what ffmpeg writes of a file, without a header."""
    program, environment = programs.unpacked("ffmpeg")
    command = [program, "-v", "error", "-i", str(path), "-f", *form, "-"]
    return subprocess.run(command, check=True, capture_output=True, env=environment, stdin=subprocess.DEVNULL).stdout


def samples_in_ffmpeg(path, dtype):
    form = {"u1": "u8", "i2": "s16le", "i4": "s32le", "f4": "f32le", "f8": "f64le"}[dtype.str[1:]]
    return np.frombuffer(in_ffmpeg(path, form, "-c:a", f"pcm_{form}"), dtype.newbyteorder("<"))


def in_sox(path, dtype):
    """Returns the samples as sox writes them without a header; it has floats as whole numbers of four bytes."""
    needs.require("sox", shutil.which("sox"), source=" (scripts/setup tools installs it)")
    form = ["-t", "raw", "-L", "-b", str(8 * dtype.itemsize), "-e", {"i": "signed", "u": "unsigned"}[dtype.kind]]
    done = subprocess.run(["sox", "-V1", "-D", path, *form, "-"], check=True, capture_output=True)
    return np.frombuffer(done.stdout, dtype.newbyteorder("<"))


@pytest.mark.parametrize("shape", [(900,), (900, 2)])
def test_samples_are_written_in_place(tmp_path, shape):
    import soundfile

    data = values("i2", shape, 5)
    store = tmp_path / "written.zarr"
    attributes = {"sample_rate": 8000}
    zarr.open_group(store, mode="w").create_array("a", data=data, chunks=(400, 2)[: len(shape)], attributes=attributes)
    with mounting.Mount(store, "--cow", tmp_path / "upper") as mount:
        path = mount.files / "a/a.wav"
        with soundfile.SoundFile(path, "r+") as sound:
            sound.seek(500)
            sound.write(data[:3])
        data[500:503] = data[:3]
        np.testing.assert_array_equal(np.load(mount.files / "a/a.npy"), data)
        np.testing.assert_array_equal(soundfile.read(path, dtype="int16")[0], data)
        mounting.zarrfs("commit", mount.path)
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["a"][...], data)


def grey(plane, fill=0):
    """Returns numbers as bytes, from black for the least to white for the largest; the fill value is black."""
    low, high = plane[plane != fill].min(), plane[plane != fill].max()
    shown = np.floor((plane - low) / (high - low) * 255 + 0.5)
    return np.where(plane == fill, 0, shown).astype("u1")


def test_png(mounted):
    import rasterio
    import SimpleITK
    from PIL import Image

    files, arrays = mounted
    plane = arrays["plane_u2"].astype("f8")
    large = arrays["large"].astype("f8")
    for name, expected in (
        ("plane_u2/plane_u2.png", grey(plane)[None]),
        ("plane_u2/plane_u2@::-1,2:.png", grey(plane[::-1, 2:])[None]),
        ("large/large.png", grey(large[0, ::2])[None]),
        ("large/large@2.png", grey(large[2, ::2])[None]),
        ("large/large@:,:9,7.png", grey(large[:, :9, 7])[None]),
        ("colours/colours.png", np.moveaxis(arrays["colours"], -1, 0)),
        ("colours/colours@...,1.png", grey(arrays["colours"][..., 1].astype("f8"))[None]),
    ):
        path = files / name
        assert path.stat().st_size == len(path.read_bytes())
        with rasterio.open(path) as opened:
            np.testing.assert_array_equal(opened.read(), expected, err_msg=name)
        found = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path), imageIO="PNGImageIO"))
        found = np.moveaxis(found, -1, 0) if found.ndim == 3 else found[None]
        np.testing.assert_array_equal(found, expected, err_msg=name)
        # Neither of these has libpng.
        found = np.asarray(Image.open(path))
        found = np.moveaxis(found, -1, 0) if found.ndim == 3 else found[None]
        np.testing.assert_array_equal(found, expected, err_msg=name)
        pixels = in_ffmpeg(path, "rawvideo", "-pix_fmt", "rgb24" if len(expected) == 3 else "gray")
        pixels = np.frombuffer(pixels, "u1").reshape(*expected.shape[1:], -1)
        np.testing.assert_array_equal(np.moveaxis(pixels, -1, 0), expected, err_msg=name)
    assert not (files / "texts/texts.png").exists()


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
