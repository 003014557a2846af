"""Elements without a fixed length, by every codec for them, against numcodecs.

200 random arrays a codec stand in one store, which is mounted once: ranks 0 to 3, both memory orders, lengths of
zero, chunks that are missing.
"""

import errno
import itertools
import json
import os
import subprocess
import zlib
from pathlib import Path

import msgpack
import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs.pcodec import PCodec
from zarr.codecs import (
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)

import layout
import mounting
import object_stores as made

ARRAYS = 200


def json_text(value):
    """Returns text as it is and anything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


class Case:
    """How arrays of one codec are made and what their elements are."""

    codec = None
    fills = [None]
    least_rank = 0

    def make(self, random):
        raise NotImplementedError

    def write(self, folder, random):
        shape, chunks = made.random_shape(random, self.least_rank)
        fill = self.fills[int(random.integers(0, len(self.fills)))]
        return made.write_array(
            folder,
            made.random_objects(random, shape, self.make),
            chunks,
            self.codec_of(random),
            random,
            order=str(random.choice(["C", "F"])),
            fill_value=fill,
            blank=self.blank(fill),
        )

    def codec_of(self, random):
        return self.codec

    def blank(self, fill):
        """Returns what a missing element is."""
        return fill or ""

    def raw(self, value):
        return value.encode()

    def line(self, value):
        return value

    def fixed(self, value):
        return value

    kind = "U"


class Text(Case):
    codec = numcodecs.VLenUTF8()
    fills = [None, "", 0, "n\u00e9ant"]

    def make(self, random):
        return made.text(random)


class Bytes(Case):
    codec = numcodecs.VLenBytes()
    kind = "S"

    def make(self, random):
        return made.data(random)

    def blank(self, fill):
        return b""

    def raw(self, value):
        return value

    def line(self, value):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return list(value)


class Lists(Case):
    kind = None

    def codec_of(self, random):
        return numcodecs.VLenArray(dtype=str(self.dtype))

    def write(self, folder, random):
        self.dtype = np.dtype(str(random.choice(["<i2", ">i4", "|u1", "<f8", ">f4"])))
        return super().write(folder, random)

    def make(self, random):
        return random.integers(0, 100, random.integers(0, 6)).astype(self.dtype)

    def blank(self, fill):
        return np.array([], self.dtype)

    def raw(self, value):
        return value.astype(value.dtype.newbyteorder("<")).tobytes()

    def line(self, value):
        return value.tolist()


class Json(Case):
    codec = numcodecs.JSON()
    fills = [None, "", "none"]

    def make(self, random):
        return made.value(random)

    def raw(self, value):
        return json_text(value).encode()

    def fixed(self, value):
        return json_text(value)


class IndentedJson(Json):
    codec = numcodecs.JSON(indent=2, ensure_ascii=False)


class MessagePack(Json):
    # numcodecs cannot write a list of no dimensions.
    least_rank = 1

    def make(self, random):
        value = made.value(random)
        # The order of members is kept, and JSON's order is the sorted one.
        return json.loads(json.dumps(value, sort_keys=True))

    def codec_of(self, random):
        return numcodecs.MsgPack(use_bin_type=bool(random.random() < 0.5))


class Categories(Case):
    labels = ["", "a", "\u4e2d\u6587", "label three", "a", *map(str, range(300, 320))]

    def codec_of(self, random):
        astype = str(random.choice(["|u1", "|i1", "<u2", ">i4", "<i8", ">u8"]))
        return numcodecs.Categorize(self.labels, dtype=object, astype=astype)

    def make(self, random):
        return str(random.choice(self.labels))


CASES = {
    "vlen-utf8": Text(),
    "vlen-bytes": Bytes(),
    "vlen-array": Lists(),
    "json2": Json(),
    "json2-indented": IndentedJson(),
    "msgpack2": MessagePack(),
    "categorize": Categories(),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Writes the store and returns it with {array: (case, expected)}."""
    store = tmp_path_factory.mktemp("objects") / "objects.zarr"
    made.write_group(store)
    expected = {}
    for seed, (name, case) in enumerate(CASES.items()):
        made.write_group(store / name)
        for number in range(ARRAYS):
            random = np.random.default_rng([seed, number])
            array = f"{name}/a{number}"
            expected[array] = (case, case.write(store / array, random))
    return store, expected


def test_random_arrays(written, mounted):
    store, expected = written
    mount = mounted(store)
    for array, (case, values) in expected.items():
        elements = list(values.flat)
        check_raw(mount.files, store, array, case, elements)
        check_txt(mount.files, store, array, case, elements)
        if case.kind:
            check_npy(mount.files, store, array, case, values)


def check_raw(files, store, array, case, elements):
    path = layout.decoded(files, store, array, "raw")
    found = made.split(path.read_bytes())
    assert found == [case.raw(element) for element in elements], array
    assert path.stat().st_size == sum(4 + len(element) for element in found), array


def check_txt(files, store, array, case, elements):
    text = layout.decoded(files, store, array, "txt").read_bytes()
    assert text.count(b"\n") == len(elements) and text[-1:] in (b"", b"\n"), array
    found = [json.loads(line) for line in text.splitlines()]
    assert len(found) == len(elements), array
    for line, element in zip(found, elements):
        assert made.same(line, case.line(element)), array


def check_npy(files, store, array, case, values):
    found = np.load(layout.decoded(files, store, array, "npy"))
    fixed = np.empty(values.shape, dtype=object)
    for place in np.ndindex(*values.shape):
        fixed[place] = case.fixed(values[place])
    width = max([len(element) for element in fixed.flat] + [1])
    assert found.dtype == np.dtype(f"{case.kind}{width}"), array
    np.testing.assert_array_equal(found, fixed.astype(found.dtype), array)


def numbers(random, shape, dtype):
    """Returns numbers of a type, of floats also those that are none."""
    dtype = np.dtype(dtype)
    if dtype.kind == "U":
        words = ["", "a", "\u4e2d\u6587", "\u00e9t\u00e9"]
        return random.choice(words, shape).astype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind == "f":
        special = [np.nan, np.inf, -np.inf, -0.0, 1.5, 0.1]
        values = np.where(
            random.random(shape) < 0.2, random.choice(special, shape), random.normal(size=shape)
        )
        return values.astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, info.dtype.newbyteorder("="), endpoint=True).astype(dtype)


LISTED = ["<i4", ">i2", "|u1", "<i8", "<f4", ">f8", "<f2", "|b1", "<U4", ">U3"]
CODED = ["<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
FIXED = {
    "json2": (LISTED, lambda random, dtype: numcodecs.JSON(), "filters"),
    "msgpack2": (LISTED, lambda random, dtype: numcodecs.MsgPack(), "filters"),
    "pcodec": (CODED, lambda random, dtype: PCodec(level=int(random.integers(0, 9))), "filters"),
    "pcodec-last": (CODED, lambda random, dtype: PCodec(), "compressor"),
    "categorize": (
        ["<U4", ">U3"],
        lambda random, dtype: numcodecs.Categorize(
            ["", "a", "\u4e2d\u6587", "\u00e9t\u00e9"], dtype=dtype, astype=str(random.choice(["u1", ">u2"]))
        ),
        "filters",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_random_arrays_of_fixed_types(tmp_path, mounted, name):
    dtypes, codec_of, place = FIXED[name]
    store = tmp_path / "fixed.zarr"
    made.write_group(store)
    expected = {}
    for number in range(ARRAYS):
        random = np.random.default_rng([7, number])
        shape, chunks = made.random_shape(random, int(name == "msgpack2"))
        dtype = dtypes[number % len(dtypes)]
        codec = codec_of(random, dtype)
        config = codec.get_config()
        members = {"filters": None, "compressor": None}
        members[place] = [config] if place == "filters" else config
        expected[f"a{number}"] = made.write_array(
            store / f"a{number}",
            np.asarray(numbers(random, shape, dtype)),
            chunks,
            codec,
            random,
            order=str(random.choice(["C", "F"])),
            fill_value=None,
            blank="" if "U" in dtype else 0,
            **members,
        )
    mount = mounted(store)
    for array, values in expected.items():
        little = values.astype(values.dtype.newbyteorder("<"))
        found = np.load(layout.decoded(mount.files, store, array, "npy"), mmap_mode="r")
        assert (found.dtype, found.shape) == (little.dtype, little.shape), array
        if little.dtype.kind == "f" and not name.startswith("pcodec"):
            # A NaN of a list is any NaN.
            np.testing.assert_array_equal(found, little, array)
        else:
            assert found.tobytes() == little.tobytes(), array
        raw = layout.decoded(mount.files, store, array, "raw").read_bytes()
        assert raw == found.tobytes(), array


def v3_codecs():
    """Returns names and the codecs of arrays of text, and those of bytes."""
    compressors = {
        "none": [],
        "zstd": [ZstdCodec(level=1)],
        "gzip-crc": [GzipCodec(level=1), Crc32cCodec()],
    }
    for name, codecs in compressors.items():
        yield f"plain-{name}", None, codecs
        yield f"turned-{name}", TransposeCodec(order=(1, 0)), codecs


@pytest.mark.parametrize("location", [None, "start", "end"])
def test_final_v3(tmp_path, mounted, location):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store)
    expected = {}
    kinds = {"text": ("string", VLenUTF8Codec(), ""), "bytes": ("bytes", VLenBytesCodec(), b"")}
    for (kind, (dtype, serializer, fill)), (name, turn, codecs) in itertools.product(
        kinds.items(), v3_codecs()
    ):
        if location:
            inner = [*([turn] if turn else []), serializer, *codecs]
            serializer = ShardingCodec(
                chunk_shape=(2, 3), codecs=inner, index_location=location
            )
            turn, codecs = None, []
        dtype = "variable_length_bytes" if dtype == "bytes" else dtype
        array = root.create_array(
            f"{kind}-{name}",
            shape=(11, 7),
            chunks=(4, 6),
            dtype=dtype,
            filters=[turn] if turn else None,
            serializer=serializer,
            compressors=codecs or None,
            fill_value=fill,
        )
        random = np.random.default_rng(len(expected))
        make = made.text if kind == "text" else made.data
        values = made.random_objects(random, (7, 4), make)
        array[2:9, 1:5] = values
        whole = made.filled((11, 7), object, fill)
        whole[2:9, 1:5] = values
        if name.startswith("turned"):
            # zarr-python stores these as if they were not transposed, so what it reads is what is there.
            whole = np.array(array[...], dtype=object)
        expected[f"{kind}-{name}"] = (Text() if kind == "text" else Bytes(), whole)
    files = mounted(store).files
    for array, (case, values) in expected.items():
        elements = list(values.flat)
        check_raw(files, store, array, case, elements)
        check_txt(files, store, array, case, elements)
        check_npy(files, store, array, case, values)
        chunk = made.split((files / array / "chunks" / "2.1.raw").read_bytes())
        assert chunk == [case.raw(element) for element in values[8:, 6:].flat], array


@pytest.mark.parametrize(
    "data_type, codec",
    [
        ("string", "vlen-utf8"),
        ("string", {"name": "vlen-utf8"}),
        ("string", {"name": "vlen-utf8", "configuration": {}}),
        ("string", {"name": "numcodecs.vlen-utf8", "configuration": {}}),
        ({"name": "string"}, "numcodecs.vlen-utf8"),
        ("bytes", "vlen-bytes"),
        ("variable_length_bytes", {"name": "vlen-bytes"}),
        ({"name": "variable_length_bytes"}, {"name": "numcodecs.vlen-bytes"}),
        ("string", "numcodecs.json2"),
        ("string", {"name": "numcodecs.msgpack2", "configuration": {"raw": False}}),
    ],
)
def test_spellings_of_v3(tmp_path, mounted, data_type, codec):
    store = tmp_path / "made.zarr"
    made.dump(
        store / "zarr.json",
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [3],
            "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": "bmE=" if "bytes" in str(data_type) else "na",
            "codecs": [codec],
        },
    )
    (store / "c").mkdir()
    values = np.array(["\u00e9", ""], dtype=object)
    encoded = {
        "json2": numcodecs.JSON().encode(values),
        "msgpack2": numcodecs.MsgPack().encode(values),
    }
    name = codec if isinstance(codec, str) else codec["name"]
    default = numcodecs.VLenUTF8().encode(values)
    (store / "c" / "0").write_bytes(encoded.get(name.rpartition(".")[2], default))
    files = mounted(store).files
    raw = (files / "made.raw").read_bytes()
    assert made.split(raw) == ["\u00e9".encode(), b"", b"na"]
    assert (files / "made.txt").read_text() == '"\u00e9"\n""\n"na"\n'
    assert np.load(files / "made.npy").tolist()[0] in ("\u00e9", "\u00e9".encode())


def nested(depth):
    return b"[" + b"[" * depth + b"]" * depth + b',"b","|O",[2]]'


HOSTILE = {
    "json2": [
        b"",
        b"[",
        b"{}",
        b'["a","|O",[2]]',
        b'["a","b","c","|O",[2]]',
        b'["a","b","|O",[4000000000]]',
        b'["a","b","|O",[4294967296,4294967296]]',
        b'["a","b","|O",[' + b"1," * 10000 + b"2]]",
        b'["a","b","|O",[2]]x',
        b'["a","b",17,[2]]',
        b'["a","\xff","|O",[2]]',
        nested(10_000),
        nested(3_000_000),
        b'["' + b"x" * 20_000_000 + b'","b","|O",[2]]',
        b"[" + b"[]," * 3_000_000 + b'"|O",[2]]',
    ],
    "msgpack2": [
        b"",
        b"\xc1",
        b"\x94\xa1a\xa1b\xa2|O\x91\x03",
        b"\xdd\xff\xff\xff\xff",
        b"\x94\xdd\xff\xff\xff\xff" + b"\xdd\xff\xff\xff\xff" * 1000,
        b"\x94\xdb\xff\xff\xff\xffabc",
        b"\x94\xc6\xff\xff\xff\xffabc",
        b"\x94\xdf\xff\xff\xff\xff\xc0",
        b"\x94\xa1a\xc7\x01\x05x\xa2|O\x91\x02",
        b"\x94" + b"\x91" * 5_000_000 + b"\xc0\xa1b\xa2|O\x91\x02",
        b"\x94\xdc\xff\xff" + b"\xc0" * 65535 * 60,
        b"\x94" + msgpack.packb([None] * 6_000_000) + b"\xa1b\xa2|O\x91\x02",
    ],
    "vlen-utf8": [
        b"",
        b"\x02\0\0",
        b"\xff\xff\xff\xff",
        b"\x02\0\0\0\xff\xff\xff\xff",
        b"\x02\0\0\0\x01\0\0\0a\xfe\xff\xff\xffb",
        b"\x03\0\0\0" + b"\0\0\0\0" * 3,
        b"\x02\0\0\0" + b"\x01\0\0\0\xff" * 2,
    ],
    "pickle": [b"cos\nsystem\n(S'true'\ntR."],
    "no-such-codec": [b"x"],
}

MEBIBYTE = 1 << 20

# MessagePack has values without a form as JSON.
DAMAGED = {errno.EIO, errno.EFBIG, errno.EOPNOTSUPP}


def test_hostile_chunks(tmp_path, daemon):
    store = tmp_path / "hostile.zarr"
    made.write_group(store)
    document = {
        "zarr_format": 2,
        "shape": [2],
        "chunks": [2],
        "dtype": "|O",
        "compressor": None,
        "fill_value": None,
        "order": "C",
    }
    names = []
    for codec, chunks in HOSTILE.items():
        for number, chunk in enumerate(chunks):
            for packed in (False, True):
                name = f"{codec}-{number}-{packed}"
                compressor = {"id": "zlib", "level": 9} if packed else None
                members = {"filters": [{"id": codec}], "compressor": compressor}
                made.dump(store / name / ".zarray", {**document, **members})
                stored = zlib.compress(chunk, 9) if packed else chunk
                (store / name / "0").write_bytes(stored)
                names.append(name)
    good = np.array(["still", "here"], dtype=object)
    made.dump(store / "good" / ".zarray", {**document, "filters": [{"id": "json2"}]})
    (store / "good" / "0").write_bytes(numcodecs.JSON().encode(good))
    mount = daemon(store, "--memory", "16M")
    for name in names:
        refused = name.startswith(("pickle", "no-such-codec"))
        # An array of a type that is not known has no lines of text.
        for suffix in ("raw", "npy") if refused else ("raw", "npy", "txt"):
            path = layout.decoded(mount.files, store, name, suffix)
            assert path.stat().st_size == 0, (name, suffix)
            with pytest.raises(OSError) as error:
                path.read_bytes()
            expected = {errno.EOPNOTSUPP} if refused else DAMAGED
            assert error.value.errno in expected, (name, suffix)
    good = (mount.files / "good" / "good.txt").read_text()
    assert good == '"still"\n"here"\n'
    # 16 MiB of budget, the program itself, and what malloc keeps.
    assert mount.peak_bytes() < 160 * MEBIBYTE
    said = mount.complaints()
    assert "panic" not in said
    assert "pickle-0-False" in said and "unpickling runs" in said
    assert "no-such-codec-0-True: codecs: filter no-such-codec: not known to make objects" in said


def test_elements_beyond_half_of_the_memory(tmp_path, daemon):
    store = tmp_path / "large.zarr"
    made.write_group(store)
    random = np.random.default_rng(1)
    codec = numcodecs.VLenUTF8()
    shapes = {"large": 100, "small": 10}
    for name, count in shapes.items():
        values = made.random_objects(random, (count,), lambda _: "x" * 100_000)
        folder = store / name
        made.dump(
            folder / ".zarray",
            {
                "zarr_format": 2,
                "shape": [count],
                "chunks": [4],
                "dtype": "|O",
                "compressor": {"id": "zlib", "level": 1},
                "filters": [codec.get_config()],
                "fill_value": "",
                "order": "C",
            },
        )
        for start in range(0, count, 4):
            chunk = made.filled((4,), object, "")
            part = values[start : start + 4]
            chunk[: len(part)] = part
            (folder / str(start // 4)).write_bytes(zlib.compress(codec.encode(chunk)))
    mount = daemon(store, "--memory", "8M")
    for _ in range(2):
        for suffix in ("raw", "txt", "npy"):
            with pytest.raises(OSError) as error:
                layout.decoded(mount.files, store, "large", suffix).read_bytes()
            assert error.value.errno == errno.EFBIG, suffix
        raw = layout.decoded(mount.files, store, "small", "raw").read_bytes()
        assert len(raw) == 10 * 100_004
    chunk = mount.files / "large" / "chunks" / "24.txt"
    assert len(chunk.read_bytes()) == 4 * 100_003
    # As wide as the longest, four bytes a letter: 4 MB, which half of 8 MiB holds.
    small = np.load(layout.decoded(mount.files, store, "small", "npy"))
    assert small.tolist() == ["x" * 100_000] * 10
    assert "half of --memory" in mount.complaints()
    assert os.listdir(mount.files / "large")


def as_made(value):
    """Returns an element as it compares: lists of numbers as lists."""
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", CASES)
def test_numcodecs_reads_what_is_encoded(tmp_path, name):
    program = Path(mounting.program()).parent / "examples" / "encode_chunks"
    assert program.is_file(), f"{program} is absent: run `cargo build --example encode_chunks`"
    written = {}
    for number in range(ARRAYS):
        random = np.random.default_rng([11, number])
        case = CASES[name]
        if name == "vlen-array":
            case.dtype = np.dtype(str(random.choice(["<i2", ">i4", "<f8"])))
        shape = tuple(max(length, 1) for length in made.random_shape(random, case.least_rank)[0])
        values = made.random_objects(random, shape, case.make)
        codec = case.codec_of(random)
        if name == "categorize":
            # Of equal labels the last one is written, and text without a label is not.
            codec = numcodecs.Categorize(["a", "\u4e2d", *case.labels], dtype=object, astype="<u2")
        order = str(random.choice(["C", "F"]))
        folder = tmp_path / f"a{number}"
        made.dump(
            folder / ".zarray",
            {
                "zarr_format": 2,
                "shape": shape,
                "chunks": shape,
                "dtype": "|O",
                "filters": [codec.get_config()],
                "compressor": None,
                "fill_value": None,
                "order": order,
            },
        )
        records = [case.raw(value) for value in values.flat]
        counted = (len(record).to_bytes(4, "little") + record for record in records)
        (folder / "decoded").write_bytes(b"".join(counted))
        written[folder] = (case, codec, order, values)
    done = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for folder, (case, codec, order, values) in written.items():
        chunk = (folder / (".".join("0" * values.ndim) or "0")).read_bytes()
        found = codec.decode(chunk)
        if found.shape != values.shape or isinstance(case, (Text, Bytes, Lists, Categories)):
            found = found.reshape(values.shape, order=order)
        for element, expected in zip(found.flat, values.flat):
            assert made.same(as_made(element), as_made(expected)), folder
