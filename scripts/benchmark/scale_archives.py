"""Archives of several fields, for the part `scale`: written as bytes and text, without a library.

Each function makes one. It takes a new directory and a share of the full size, and returns the path of an array.
"""

import os
import struct

from scale_stores import CHUNK, V2_ARRAY, V3_ARRAY, V3_GROUP, attributes, write

# A missing inner chunk in the index of a shard.
NO_INNER = bytes([0xFF]) * 16


def counted(full, share):
    return max(1, round(full * share))


def put(path, content):
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(file, content)
    os.close(file)


def era5(store, share):
    """Ten variables of v2, 130,000 chunk files each, all in the directory of their array."""
    chunks = counted(130_000, share)
    write(store / ".zgroup", {"zarr_format": 2})
    for number in range(10):
        array = store / f"variable{number}"
        write(array / ".zarray", V2_ARRAY | {"shape": [2 * chunks]})
        write(array / ".zattrs", attributes(2000, number))
        for chunk in range(chunks):
            put(array / str(chunk), CHUNK)
    return "variable0"


def plate(store, share):
    """A plate of 384 wells, 9 fields each, as OME-Zarr 0.4: five levels of one chunk a field."""
    wells = [(row, column) for row in "ABCDEFGHIJKLMNOP" for column in range(1, 25)]
    wells = wells[: counted(len(wells), share)]
    paths = [{"path": f"{row}/{column}"} for row, column in wells]
    write(store / ".zgroup", {"zarr_format": 2})
    write(store / ".zattrs", {"plate": {"wells": paths, "version": "0.4"}})
    levels = [{"path": str(level)} for level in range(5)]
    for row, column in wells:
        well = store / row / str(column)
        write(store / row / ".zgroup", {"zarr_format": 2})
        write(well / ".zgroup", {"zarr_format": 2})
        write(well / ".zattrs", {"well": {"images": [{"path": str(field)} for field in range(9)]}})
        for field in range(9):
            image = well / str(field)
            write(image / ".zgroup", {"zarr_format": 2})
            write(image / ".zattrs", {"multiscales": [{"version": "0.4", "datasets": levels}]})
            for level in range(5):
                write(image / str(level) / ".zarray", V2_ARRAY)
                put(image / str(level) / "0", CHUNK)
    return "A/1/0/0"


def sharded(store, share):
    """An array of 10^6 x 10^6 elements in shards of 10^4 x 10^4, a hundred of them stored, with one inner chunk of
    100 x 100 each."""
    index = [{"name": "bytes", "configuration": {"endian": "little"}}]
    grid = {"name": "regular", "configuration": {"chunk_shape": [10_000, 10_000]}}
    inner = {"chunk_shape": [100, 100], "codecs": [{"name": "bytes"}], "index_codecs": index}
    document = V3_ARRAY | {
        "shape": [10**6, 10**6],
        "data_type": "uint8",
        "fill_value": 0,
        "chunk_grid": grid,
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
    }
    write(store / "zarr.json", V3_GROUP)
    write(store / "image" / "zarr.json", document)
    shard = bytes([7]) * 10_000 + struct.pack("<QQ", 0, 10_000) + NO_INNER * 9_999
    for number in range(counted(100, share)):
        folder = store / "image" / "c" / str(number)
        folder.mkdir(parents=True)
        put(folder / str(number), shard)
    return "image"


def sparse(store, share):
    """An array of 10^9 chunks, a thousand of them stored."""
    write(store / ".zgroup", {"zarr_format": 2})
    write(store / "rare" / ".zarray", V2_ARRAY | {"shape": [2 * 10**9]})
    for number in range(counted(1000, share)):
        put(store / "rare" / str(number * 1_000_003 % 10**9), CHUNK)
    return "rare"


def strings(store, share):
    """An array of 5 million strings of different lengths, in chunks of 50,000."""
    count, length = counted(5_000_000, share), 50_000
    filters = [{"id": "vlen-utf8"}]
    changed = {"shape": [count], "chunks": [length], "dtype": "|O", "fill_value": "", "filters": filters}
    write(store / ".zgroup", {"zarr_format": 2})
    write(store / "names" / ".zarray", V2_ARRAY | changed)
    texts = [b"barcode-" + b"x" * (number % 20) for number in range(length)]
    packed = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    for chunk in range(-(-count // length)):
        put(store / "names" / str(chunk), struct.pack("<I", length) + packed)
    return "names"


def one_group(store, share):
    """A group with a million arrays without chunks."""
    arrays = counted(1_000_000, share)
    write(store / "zarr.json", V3_GROUP)
    write(store / "group" / "zarr.json", V3_GROUP)
    write(store / "group" / "array0" / "zarr.json", V3_ARRAY)
    document = (store / "group" / "array0" / "zarr.json").read_bytes()
    for number in range(1, arrays):
        array = store / "group" / f"array{number}"
        os.mkdir(array)
        put(array / "zarr.json", document)
    return "group/array0"
