"""The corpus of stores by other writers, checked against its manifest through a mount.

What the manifest expects to be `ok` has to be read, whatever its dialect, codecs and data type. An `optional`
entry may be refused, but must never give other bytes. ../shared/corpus/README.md has the manifest's members.
"""

import errno
import hashlib
import json
import subprocess
from collections import Counter, namedtuple

import numpy as np

import layout
from mounting import ROOT

FOLDER = ROOT.parent / "shared" / "corpus"

# A decoded file longer than this cannot be: an offset in a file is a signed 64-bit number.
LONGEST_FILE = 2**63 - 1

# What a reader may be told of an array that does not decode; anything else is a fault.
REFUSALS = {errno.EOPNOTSUPP, errno.EIO, errno.EFBIG, errno.EINVAL}

Result = namedtuple("Result", "entry status detail")


def entries():
    """Returns the manifest, one dict an array."""
    with open(FOLDER / "manifest.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def by_store(chosen):
    """Returns {"source/store": entries}."""
    stores = {}
    for entry in chosen:
        stores.setdefault(f"{entry['source']}/{entry['store']}", []).append(entry)
    return stores


def unpack(folder):
    """Unpacks all archives into `folder`."""
    for archive in sorted(FOLDER.glob("*.tar.gz")):
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)


def check(entry, files, store):
    """Compares one entry with what the files view in `files` shows; returns a Result.

    The status is ok, wrong, error (refused although it has to be readable), refused (and may be) or any.
    """
    try:
        faults = compare(entry, files, store)
    except OSError as error:
        return refused(entry, error)
    except (ValueError, KeyError, AssertionError) as error:
        return Result(entry, "wrong", f"{type(error).__name__}: {error}")
    if entry["expect"] == "any":
        return Result(entry, "any", "")
    if faults:
        return Result(entry, "wrong", "; ".join(faults))
    if entry["expect"] == "error":
        return Result(entry, "wrong", "was read, but has to be refused")
    return Result(entry, "ok", "")


def refused(entry, error):
    """Judges an entry that gave an OSError."""
    if entry["expect"] == "ok" or error.errno not in REFUSALS:
        return Result(entry, "error", str(error))
    return Result(entry, "refused", str(error))


def compare(entry, files, store):
    """Returns what is wrong with the decoded files of an entry."""
    if "regions" in entry:
        return compare_regions(entry, files, store)
    raw = layout.decoded(files, store, entry["array"], "raw").read_bytes()
    if "sha256" not in entry:
        # The reference could not read it, so there is nothing to compare with.
        return []
    faults = []
    if len(raw) != entry["nbytes"]:
        faults.append(f"raw has {len(raw)} bytes, not {entry['nbytes']}")
    if digest(raw) != entry["sha256"]:
        faults.append("raw differs")
    if "encoding" in entry:
        return faults
    npy = layout.decoded(files, store, entry["array"], "npy")
    return faults + compare_npy(entry, npy)


def compare_npy(entry, path):
    """Returns what is wrong with the .npy file of an entry."""
    faults = []
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, fortran, _ = read_header(file)
        start = file.tell()
        data = file.read()
    if start % 64:
        faults.append(f"npy data start at {start}")
    if list(shape) != entry["shape"] or fortran:
        faults.append(f"npy has shape {shape}, fortran_order {fortran}")
    if digest(data) != entry["sha256"]:
        faults.append("npy differs")
    mapped = np.load(path, mmap_mode="r")
    if digest(mapped.tobytes()) != entry["sha256"]:
        faults.append("npy mapped differs")
    return faults


def compare_regions(entry, files, store):
    """Returns which regions of an array too big to read whole are wrong."""
    itemsize = np.dtype(entry["dtype"]).itemsize
    length = itemsize * int(np.prod([int(n) for n in entry["shape"]], dtype=object))
    flat = length <= LONGEST_FILE - 4096
    read = read_mapped if flat else read_chunks
    faults = []
    for region in entry["regions"]:
        box = [slice(s, s + n) for s, n in zip(region["start"], region["shape"])]
        if digest(read(entry, files, store, box)) != region["sha256"]:
            faults.append(f"region at {region['start']} differs")
    return faults


def read_mapped(entry, files, store, box):
    """Reads a region out of the mapped .npy file."""
    path = layout.decoded(files, store, entry["array"], "npy")
    return np.load(path, mmap_mode="r")[tuple(box)].tobytes()


def read_chunks(entry, files, store, box):
    """Reads a region that lies within one chunk out of that chunk's file."""
    chunks = entry["stored"]["chunks"]
    index = [part.start // chunk for part, chunk in zip(box, chunks)]
    folder = layout.array_folder(files, entry["array"]) / "chunks"
    chunk = np.load(folder / f"{layout.chunk_name(index)}.npy", mmap_mode="r")
    inside = [
        slice(part.start - at * n, part.stop - at * n)
        for part, at, n in zip(box, index, chunks)
    ]
    return chunk[tuple(inside)].tobytes()


def digest(data):
    """Returns the SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def table(results):
    """Returns the lines of a table: how many entries of each dialect and writer ended how."""
    columns = ("ok", "wrong", "error", "refused", "any")
    counts = {}
    for result in results:
        row = (result.entry["dialect"], result.entry["writer"])
        counts.setdefault(row, Counter())[result.status] += 1
    width = max([len(writer) for _, writer in counts] + [6])
    lines = [row_text("dialect", "writer", width, columns)]
    for (dialect, writer), count in sorted(counts.items()):
        lines.append(row_text(dialect, writer, width, [count[c] for c in columns]))
    total = Counter(result.status for result in results)
    lines.append(row_text("all", "", width, [total[c] for c in columns]))
    return lines


def row_text(dialect, writer, width, cells):
    """Returns one line of the table."""
    return f"{dialect:<8} {writer:<{width}}" + "".join(f"{cell:>9}" for cell in cells)
