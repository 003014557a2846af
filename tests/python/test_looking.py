"""What `preview` and `map` show on a terminal and beside one, and how long a bar says that a command takes."""

import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from fcntl import ioctl
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import zarr

import mounting


def on_terminal(*arguments, rows=40, columns=80):
    """Runs the program on a terminal of its own; returns its status and what it wrote, a list of (seconds, bytes)."""
    main, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    began = time.monotonic()
    process = subprocess.Popen([mounting.program(), *map(str, arguments)], stdin=side, stdout=side, stderr=side, env=environment)
    os.close(side)
    written = []
    while True:
        if not select.select([main], [], [], 60)[0]:
            process.kill()
            break
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        written.append((time.monotonic() - began, part))
    os.close(main)
    return process.wait(), written


def text_on_terminal(*arguments, **size):
    status, written = on_terminal(*arguments, **size)
    assert status == 0, written
    return joined(written)


def joined(written):
    return b"".join(part for _, part in written).decode().replace("\r\n", "\n")


PLANES = {
    "f4": lambda random: random.standard_normal((70, 210)).astype("f4"),
    "f8_nan": lambda random: np.where(random.random((90, 40)) < 0.3, np.nan, random.standard_normal((90, 40)) * 1e200),
    "f2": lambda random: random.standard_normal((9, 9)).astype("f2"),
    "i8": lambda random: np.array([[2**63 - 1, 2**63 - 2], [-(2**63) + 1, -(2**63)]], "i8"),
    "u8": lambda random: random.integers(0, 2**64 - 1, (3, 300), "u8"),
    "bool": lambda random: random.random((20, 20)) < 0.5,
    "one": lambda random: np.full((1, 1), 7, "i2"),
    "line": lambda random: np.arange(5, 100_000, dtype="i4"),
    "point": lambda random: np.array(3.5),
    "five": lambda random: random.integers(1, 200, (3, 2, 4, 30, 50), "u1"),
    "rows": lambda random: random.integers(-99, 99, (40, 300, 1, 1), "i2"),
    "wide": lambda random: random.integers(0, 999, (2, 5000), "i4"),
}


@pytest.fixture(scope="module")
def planes(tmp_path_factory):
    path = tmp_path_factory.mktemp("planes") / "s.zarr"
    random, made = np.random.default_rng(3), {}
    root = zarr.open_group(path, mode="w")
    for name, make in PLANES.items():
        made[name] = make(random)
        chunks = tuple(max(1, length // 3) for length in made[name].shape)
        root.create_array(name, data=made[name], chunks=chunks)
    return path, made


def plane_of(data):
    """Returns the plane that is shown: the last two dimensions of several elements, the others at their first one."""
    long = [axis for axis, length in enumerate(data.shape) if length > 1][-2:]
    return data[tuple(slice(None) if axis in long else 0 for axis in range(data.ndim))]


def test_the_range_equals_that_of_numpy_on_every_terminal(planes):
    path, made = planes
    for name, data in made.items():
        plane = plane_of(data)
        low, high = np.nanmin(plane), np.nanmax(plane)
        seen = set()
        for columns in ("20", "33", "80", "1000"):
            done = mounting.zarrfs("preview", path / name, environment=os.environ | {"COLUMNS": columns})
            line = next(line for line in done.stdout.splitlines() if line.startswith("values from "))
            seen.add(line)
            assert all(len(line) <= int(columns) for line in done.stdout.split("values from ")[0].splitlines()), name
        assert len(seen) == 1, (name, seen)
        found = [json.loads(word) for word in re.match(r"values from (\S+) to ([^\s,]+)", seen.pop()).groups()]
        told = json.loads(mounting.zarrfs("preview", "--json", path / name).stdout)
        assert told["is_whole"] and told["range"] == found, name
        assert [length for length in told["shape"] if length > 1] == list(plane.shape), name
        assert [np.array(number).astype(data.dtype) for number in found] == [low, high], (name, found)


def test_a_picture_has_the_shape_of_its_plane(planes):
    path, made = planes
    for name in ("f4", "f8_nan", "five", "rows", "f2"):
        rows, columns = plane_of(made[name]).shape
        coloured = text_on_terminal("preview", path / name, columns=80)
        lines = [line.count("\u2580") for line in coloured.splitlines() if "\u2580" in line]
        # A half block is a square.
        assert len(set(lines)) == 1 and abs(lines[0] * rows - 2 * len(lines) * columns) <= 2 * max(rows, columns), (name, lines)
        done = mounting.zarrfs("preview", path / name, environment=os.environ | {"COLUMNS": "80"})
        letters = done.stdout.split("values from ")[0].splitlines()
        width = max(map(len, letters))
        # A letter is twice as high as wide.
        assert abs(width * rows - 2 * len(letters) * columns) <= 2 * max(rows, 2 * columns), (name, width, len(letters))


def test_pictures_fit_on_narrow_terminals(planes):
    path, _ = planes
    for columns in (1, 5, 19):
        for command in ("preview", "map"):
            text = text_on_terminal(command, path / "f4", columns=columns)
            lines = [line.count("\u2580") for line in text.splitlines() if "\u2580" in line]
            assert lines and max(lines) <= columns, (command, columns, lines)
            done = mounting.zarrfs(command, path / "wide", environment=os.environ | {"COLUMNS": str(columns)})
            assert len(done.stdout.splitlines()[0].strip()) <= columns


def test_arrays_without_a_range_are_described(tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    root.create_array("nan", data=np.full((4, 5), np.nan))
    root.create_array("empty", shape=(0, 5), chunks=(1, 1), dtype="f4")
    root.create_array("missing", shape=(4, 5), chunks=(2, 2), dtype="i2", fill_value=-1)
    root.create_array("c", data=np.array([[3 + 4j, 0], [np.inf, 1j]]))
    root.create_array("s", data=np.array(["a", "b"]))
    root.create_array("t", data=np.array(["2020-01-01", "NaT", "2021-05-05"], "M8[D]").astype("M8[s]"))

    def told(name):
        return mounting.zarrfs("preview", tmp_path / "s.zarr" / name).stdout

    assert "no values\n" in told("nan") and "blank NaN\n" in told("nan")
    assert "no values\n" in told("empty")
    assert "values from -1 to -1, all of them the fill value\n" in told("missing")
    assert "magnitudes from 0 to 5, without the fill value from 1 to 5\n" in told("c")
    assert "the fill value and infinity" in told("c")
    assert "values from 2020-01-01T00:00:00 to 2021-05-05T00:00:00\n" in told("t") and "blank NaT\n" in told("t")
    done = mounting.zarrfs("preview", tmp_path / "s.zarr/s", check=False)
    assert done.returncode == 2 and "is not numeric" in done.stderr


def test_each_character_of_a_map_is_in_its_legend(tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    random = np.random.default_rng(5)
    for name, shape in [("line", (300,)), ("plane", (40, 90)), ("deep", (9, 4, 3, 2)), ("one", (1,))]:
        names = [f"d{axis}" for axis in range(len(shape))]
        array = root.create_array(name, shape=shape, chunks=(1,) * len(shape), dtype="u1", dimension_names=names)
        array[: shape[0] // 3 + 1, ...] = 1
        for at in random.integers(0, shape, (40, len(shape))):
            array[tuple(at)] = 1
    (tmp_path / "s.zarr/line/c/7").write_bytes(b"x")
    for name in ("line", "plane", "deep", "one"):
        for more in ([], ["--by", "size"], ["--by", "ratio"], ["--data"]):
            status, output = (lambda done: (done.returncode, done.stdout))(mounting.zarrfs("map", tmp_path / "s.zarr" / name, *more, check=False))
            assert status == int(name == "line" and more == ["--data"])
            picture, legend = re.match(r"(?s)(.*?\n)((?:rows|columns): .*)", output).groups()
            signs = set(picture) - {"\n"}
            digits = {sign for sign in signs if sign.isdigit()}
            assert all(f"{sign} " in legend for sign in signs - digits), (name, more, output)
            assert not digits or "0 to 9: " in legend or digits == {"9"} and "9 " in legend, (name, more, output)
            # The same cells in colours.
            _, written = on_terminal("map", tmp_path / "s.zarr" / name, *more)
            text = joined(written)
            picture, _, legend = text.rpartition("rows: ") if "rows: " in text else text.rpartition("columns: ")
            colours = set(re.findall(r"[34]8;2;(\d+;\d+;\d+)m", picture))
            named = set(re.findall(r"38;2;(\d+;\d+;\d+)m", legend))
            if not more:
                partly = "partly" in legend
                assert len(colours - named) == 0 or partly, (name, text)
    deep = json.loads(mounting.zarrfs("map", "--json", tmp_path / "s.zarr/deep").stdout)
    assert (deep["row_dimension"], deep["column_dimension"]) == (0, 1) and deep["dimension_names"] == ["d0", "d1", "d2", "d3"]


def test_a_map_says_that_chunks_are_shards(tmp_path):
    array = zarr.create_array(tmp_path / "s.zarr", shape=(64, 64), chunks=(8, 8), shards=(32, 16), dtype="i4")
    array[0, 0] = 1
    text = mounting.zarrfs("map", tmp_path / "s.zarr").stdout
    assert "1 of 8 chunks stored" in text and "each chunk is a shard of 8 inner chunks" in text, text
    text = mounting.zarrfs("map", tmp_path / "s.zarr/c/0/0").stdout
    assert "1 of 8 chunks stored" in text and "shard" not in text, text
    zarr.create_array(tmp_path / "t.zarr", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    assert "shard" not in mounting.zarrfs("map", tmp_path / "t.zarr").stdout


class SlowChunks(SimpleHTTPRequestHandler):
    """Answers for one chunk at a time, after a pause."""

    turn = threading.Lock()

    def do_GET(self):
        if "/c/" in self.path:
            with self.turn:
                time.sleep(0.1)
        super().do_GET()

    def log_message(self, *_):
        pass


def test_the_estimated_time_left_is_right_from_the_start(tmp_path):
    array = zarr.create_array(tmp_path / "s.zarr", shape=(56 << 20,), chunks=(1 << 20,), dtype="u1", compressors=None)
    array[...] = 1
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SlowChunks, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/s.zarr"
        status, written = on_terminal("cp", "--concurrency", "2", url, tmp_path / "a.raw")
    finally:
        server.shutdown()
    assert status == 0, written
    assert (tmp_path / "a.raw").stat().st_size == 56 << 20
    end = written[-1][0]
    told = [(at, int(left)) for at, part in written for left in re.findall(rb"(\d+) s left", part)]
    assert end > 5 and told and told[0][0] < 3.5, (end, told)
    for at, left in told:
        assert abs(left - (end - at)) < 2 + 0.5 * (end - at), (end, told)
