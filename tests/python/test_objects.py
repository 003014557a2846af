"""Elements without a fixed length, by every codec for them, against numcodecs.

200 random arrays a codec stand in one store, which is mounted once: ranks 0 to 3, both memory orders, lengths of
zero, chunks that are missing.
"""

import itertools
import json
import subprocess
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import (
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


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize("location", [None, "start", "end", "beside"])
def test_final_v3(tmp_path, mounted, location):
    store = tmp_path / "made.zarr"
    root = zarr.create_group(store)
    expected = {}
    kinds = {"text": ("string", VLenUTF8Codec(), ""), "bytes": ("bytes", VLenBytesCodec(), b"")}
    for (kind, (dtype, serializer, fill)), (name, turn, codecs) in itertools.product(
        kinds.items(), v3_codecs()
    ):
        if location == "beside":
            # The other codecs stand before and after the sharding.
            serializer = ShardingCodec(chunk_shape=(2, 2), codecs=[serializer])
        elif location:
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
