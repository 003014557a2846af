"""Stores of v2 whose chunks numcodecs encodes: arrays of objects, written document by document.

zarr-python cannot write all of them (it reads lists of objects in F order as others than it wrote), so the
chunks are made here from what numcodecs gives.
"""

import json
import math

import numpy as np

import layout

# How often a chunk is not stored.
MISSING = 0.2


def dump(path, document):
    """Writes a document, its folder too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_group(folder):
    dump(folder / ".zgroup", {"zarr_format": 2})


def write_array(folder, values, chunks, codec, random, **members):
    """Writes an array and returns what it reads as: some chunks are left out.

    `codec` is its only filter or, with `compressor=None` in `members`, its compressor. Other members are those
    of `.zarray`; `fill_value` also is what a missing chunk reads as unless `blank` says it.
    """
    blank = members.pop("blank", members.get("fill_value"))
    order = members.setdefault("order", "C")
    document = {
        "zarr_format": 2,
        "shape": values.shape,
        "chunks": chunks,
        "dtype": values.dtype.str,
        "filters": [codec.get_config()],
        "compressor": None,
        **members,
    }
    dump(folder / ".zarray", document)
    expected = values.copy()
    for index in layout.chunk_indices(values.shape, chunks):
        # With the dots an array without dimensions stays an array.
        box = (*layout.chunk_box(index, values.shape, chunks), ...)
        if random.random() < MISSING:
            expected[box] = filled(values[box].shape, values.dtype, blank)
            continue
        chunk = filled(chunks, values.dtype, blank)
        chunk[(*(slice(0, n) for n in values[box].shape), ...)] = values[box]
        encoded = codec.encode(np.asarray(chunk, order=order))
        if hasattr(encoded, "tobytes"):
            encoded = encoded.tobytes()
        name = ".".join(map(str, index)) or "0"
        (folder / name).write_bytes(encoded)
    return expected


def filled(shape, dtype, value):
    """Returns an array of one value, which may be a list."""
    array = np.empty(shape, dtype)
    for place in np.ndindex(*shape):
        array[place] = value
    return array


def random_shape(random, least_rank=0):
    """Returns a shape and that of the chunks: also without dimensions, and without elements."""
    rank = int(random.integers(least_rank, 4))
    shape = tuple(int(n) for n in random.integers(1, 7, rank))
    if rank and random.random() < 0.1:
        place = int(random.integers(0, rank))
        shape = shape[:place] + (0,) + shape[place + 1 :]
    chunks = tuple(int(n) for n in random.integers(1, 5, rank))
    return shape, chunks


def random_objects(random, shape, make):
    """Returns an array of objects, each made by `make(random)`."""
    values = np.empty(shape, dtype=object)
    for place in np.ndindex(*shape):
        values[place] = make(random)
    return values


def text(random):
    """Returns text of any script, empty text often; never what reads as JSON."""
    letters = "abc xyz\n\t\"\\\u00e9\u4e2d\u0416\U0001f600\u200f"
    count = int(random.choice([0, 0, 1, 2, 3, 9, 40]))
    letters = [letters[n] for n in random.integers(0, len(letters), count)]
    return "".join(["_", *letters]) if letters else ""


def data(random):
    return random.bytes(int(random.choice([0, 0, 1, 2, 5, 30])))


def value(random, depth=0):
    """Returns text or anything else that JSON holds."""
    kind = int(random.integers(0, 7 if depth > 2 else 9))
    if kind == 7:
        return [value(random, depth + 1) for _ in range(random.integers(0, 4))]
    if kind == 8:
        count = random.integers(0, 4)
        return {text(random): value(random, depth + 1) for _ in range(count)}
    number = float(random.choice([0.0, -1.5, 1e-300, 0.1, 123456.789]))
    integer = int(random.integers(-(2**62), 2**62))
    return [text(random), text(random), integer, number, True, False, None][kind]


def split(raw):
    """Returns the elements of a .raw file."""
    elements = []
    while raw:
        count = int.from_bytes(raw[:4], "little")
        assert len(raw) >= 4 + count
        elements.append(raw[4 : 4 + count])
        raw = raw[4 + count :]
    return elements


def same(found, expected):
    """Compares values, a NaN being equal to itself."""
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return type(found) is type(expected) and found == expected
