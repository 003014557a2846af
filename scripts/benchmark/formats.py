"""Whole files in each format, compared with `.npy` of the same array. Files with moved or converted elements, and CF
values, are compared with numpy, which does the same to a `.npy`.

The decoded chunks are in the daemon's memory, and no page of a file is in the page cache. So the rows show the cost of a
format, without the codec.
"""

import time

import numpy as np
import zarr

import arrays
import layout
import peers
import table

# The formats whose elements are in the array's order, and those that move them or convert each into another form.
STRAIGHT = ("raw", "nrrd", "mha", "nii", "vti", "img", "mrc", "h5", "tif", "ome.tif")
OTHERS = ("fits", "f.npy")

SCALE, OFFSET = 0.0625, 250.0


def run(arguments):
    store = arrays.store(arrays.case("zstd-1M"), arguments.size)
    arrays.warm_up(store)
    rows = []
    with peers.Ours(store, "--memory", f"{2 * arguments.size + 64}M") as mount:
        mount.read("whole")
        names = [(extension, f".{extension}", 0.9) for extension in STRAIGHT]
        names += [(extension, f".{extension}", None) for extension in OTHERS]
        names += [("half of the planes", f"@:{arguments.size // 2}.npy", 0.9), ("every second", "@::2.npy", None)]
        done = {ending: [] for _, ending, _ in names}
        done[".npy"] = []
        for _ in range(arguments.rounds):
            for ending in done:
                done[ending].append(whole(mount, ending))
        for name, ending, aim in names:
            rows.append(table.speeds(name, "npy", done[ending], done[".npy"], aim))
    return rows + moved(store, arguments) + meant(arguments)


def moved(store, arguments):
    """Returns the rows of elements in another order, compared with numpy, which moves the elements of a `.npy`."""
    moves = {".f.npy": np.asfortranarray, ".fits": lambda values: values.astype(">f4")}
    rows = []
    with peers.Ours(store, "--memory", f"{2 * arguments.size + 64}M") as mount:
        mount.read("whole")
        for ending, move in moves.items():
            pairs = [beside_numpy(mount, ending, move) for _ in range(arguments.rounds)]
            ours, theirs = zip(*pairs)
            rows.append(table.speeds(ending.removeprefix("."), "npy and numpy", ours, theirs, 0.9))
    return rows


def beside_numpy(mount, ending, move):
    """Reads the file with this ending, then `.npy`, and lets numpy move its elements; both into fresh memory."""
    return timed(named(mount, ending), lambda path: np.fromfile(path, "u1")), timed(
        mount.npy, lambda path: move(np.load(path))
    )


def timed(path, read):
    """Times the reading of a file that the page cache does not have."""
    peers.read_file("forget", path)
    start = time.perf_counter()
    values = read(path)
    return peers.Read(time.perf_counter() - start, values.nbytes, 0.0)


def named(mount, ending):
    """Returns the file of the root array with this ending."""
    base = layout.decoded(mount.files, mount.store, "/", "x").with_suffix("")
    return base.with_name(base.name + ending)


def whole(mount, ending):
    """Reads the file of the root array with this ending."""
    path = named(mount, ending)
    peers.read_file("forget", path)
    return peers.read_file("whole", path)


def packed(size):
    """Returns the store of whole numbers with a scale; makes it the first time."""
    path = arrays.FOLDER / str(size) / "packed.zarr"
    if not path.exists():
        attributes = {"scale_factor": SCALE, "add_offset": OFFSET, "missing_value": -32768}
        values = (arrays.field(size) * 1000).astype("<i2")
        zarr.create_array(path, data=values, chunks=(64, 64, 64), attributes=attributes)
    return path


def meant(arguments):
    """Returns the row of values that the daemon scales, compared with numpy."""
    store = packed(arguments.size)
    arrays.warm_up(store)
    ours, theirs = [], []
    with peers.Ours(store, "--memory", f"{2 * arguments.size + 64}M") as mount:
        mount.read("whole")
        path = mount.npy.with_name(mount.npy.name.replace(".npy", ".cf.npy"))
        for _ in range(arguments.rounds):
            ours.append(timed(path, np.load))
            theirs.append(timed(mount.npy, lambda path: scaled(np.load(path))))
    return [table.speeds("cf.npy", "npy and numpy", ours, theirs, 0.7)]


def scaled(values):
    """Returns the CF values, as xarray computes them."""
    decoded = values.astype("f8")
    decoded[decoded == -32768] = np.nan
    decoded *= SCALE
    decoded += OFFSET
    return decoded
