"""`zarrfs diff`, `diff --arrays` and `status` against changes that zarr-python and numpy made: on a mount, and on an
upper folder that is not mounted."""

import itertools
import json
import shutil

import numpy as np
import pytest
import zarr

import mounting
from mounting import zarrfs

# A store that grows and shrinks under the mount has no consolidated metadata.
pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = {
    "v2": {"zarr_format": 2},
    "v3": {"zarr_format": 3},
    "sharded": {"zarr_format": 3, "sharded": True},
}


# Each kind, and each way to ask, where both need not meet.
BY_TURNS = pytest.mark.parametrize(
    "kind, changed",
    [("v2", "live"), ("v3", "unmounted"), ("sharded", "live"), ("sharded", "unmounted")],
    indirect=True,
)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=["live", "unmounted"])
def changed(request, tmp_path):
    """Makes changes through a mount with `changed(store, change)`: returns where the commands are to ask."""
    mounts = []

    def make(store, change):
        upper = tmp_path / "upper"
        mount = mounting.Mount(store, "--cow", upper).__enter__()
        if request.param == "live":
            mounts.append(mount)
        try:
            change(mount)
        finally:
            if request.param == "unmounted":
                mount.__exit__()
        return mount.path if request.param == "live" else upper

    yield make
    for mount in mounts:
        mount.__exit__()


def make_array(group, name, shape, chunks, kind, **more):
    """Makes an array; with sharding each shard is two chunks long."""
    if kind.get("sharded"):
        more["shards"] = tuple(2 * chunk for chunk in chunks)
    return group.create_array(name, shape=shape, chunks=chunks, **more)


def make_group(path, kind):
    return zarr.create_group(path, zarr_format=kind["zarr_format"])


def open_group(path):
    return zarr.open_group(path, mode="r+", use_consolidated=False)


def nodes(place):
    """Returns what `diff --arrays` says of each path; its exit status is checked."""
    done = zarrfs("diff", "--arrays", "--json", place, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["nodes"]
    assert (done.returncode, done.stderr) == (1 if found else 0, "")
    assert len({node["path"] for node in found}) == len(found)
    return {node.pop("path"): node for node in found}


def expected_regions(before, after, box):
    """Returns (start, stop, count) of each stored chunk with elements that differ, in C order of the chunks: the
    smallest box around them. `box` is the shape of a stored chunk."""
    differ = before != after
    counts = [-(-length // edge) for length, edge in zip(differ.shape, box)]
    found = []
    for index in itertools.product(*map(range, counts)):
        corner = np.array(index, dtype=int) * box
        part = differ[tuple(slice(at, at + edge) for at, edge in zip(corner, box))]
        places = np.argwhere(part)
        if len(places):
            start, stop = corner + places.min(axis=0), corner + places.max(axis=0) + 1
            found.append((start.tolist(), stop.tolist(), len(places)))
    return found


def regions(node):
    return [(found["start"], found["stop"], found["count"]) for found in node.get("regions", [])]


def stored_box(array):
    return array.shards or array.chunks


# Elements.


@pytest.mark.parametrize("seed", range(2))
def test_regions_are_the_elements_that_differ(seed, kind, changed, tmp_path):
    random = np.random.default_rng(seed)
    group = make_group(tmp_path / "some.zarr", kind)
    for name in ("whole", "sparse", "same"):
        shape = tuple(int(n) for n in random.integers(8, (40, 15)[seed], 2 + seed))
        chunks = tuple(int(n) for n in random.integers(3, (9, 6)[seed], len(shape)))
        array = make_array(group, name, shape, chunks, kind, dtype="<i2", fill_value=1)
        if name != "sparse":
            array[...] = random.integers(0, 9, shape)
        array[tuple(slice(0, n // 2) for n in shape)] = 3
    before = {name: array[...] for name, array in group.arrays()}

    def change(mount):
        root = open_group(mount.path)
        for name in ("whole", "sparse"):
            for _ in range(3):
                low = [int(random.integers(0, n - 1)) for n in root[name].shape]
                ends = zip(low, root[name].shape)
                box = tuple(slice(a, int(random.integers(a + 1, n + 1))) for a, n in ends)
                values = random.integers(0, 9, root[name][box].shape)
                values[random.random(values.shape) < 0.3] = 1
                root[name][box] = values
        # Chunks that are written again, as they were.
        root["same"][...] = before["same"]
        # In place, by way of the files view.
        mapped = np.load(mount.files / "whole/whole.npy", mmap_mode="r+")
        mapped[-1] = 8
        mapped.flush()
        after.update({name: array[...] for name, array in root.arrays()})

    after = {}
    said = nodes(changed(tmp_path / "some.zarr", change))
    for name in ("whole", "sparse"):
        wanted = expected_regions(before[name], after[name], stored_box(group[name]))
        assert wanted, "nothing was changed"
        assert said[name]["change"] == "changed" and "error" not in said[name]
        assert regions(said[name]) == wanted
    assert set(said) == {"whole", "sparse"}


def test_chunks_that_come_and_go_are_regions(kind, changed, tmp_path):
    group = make_group(tmp_path / "some.zarr", kind)
    array = make_array(group, "a", (20, 10), (5, 5), kind, dtype="<f4", fill_value=np.nan)
    array[:10] = np.arange(100.0).reshape(10, 10)
    before = array[...]
    keys = sorted(path for path in (tmp_path / "some.zarr/a").rglob("*") if path.is_file())
    key = next(path for path in keys if not path.name.startswith((".z", "zarr.json")))

    def change(mount):
        (mount.path / key.relative_to(tmp_path / "some.zarr")).unlink()
        opened = open_group(mount.path)["a"]
        opened[13:20, 6:7] = 5
        after.append(opened[...])

    after = []
    said = nodes(changed(tmp_path / "some.zarr", change))
    # Those that are not a number are equal to themselves.
    numbers = (np.nan_to_num(values, nan=-1) for values in (before, *after))
    assert regions(said["a"]) == expected_regions(*numbers, stored_box(array))
    assert list(said) == ["a"]


@BY_TURNS
@pytest.mark.parametrize("shape", [(17, 20), (41, 37), (33, 9)])
def test_a_resized_array_is_compared_where_it_was(shape, kind, changed, tmp_path):
    group = make_group(tmp_path / "some.zarr", kind)
    array = make_array(group, "a", (30, 20), (4, 6), kind, dtype="<i4", fill_value=-1)
    before = np.arange(600).reshape(30, 20)
    array[...] = before

    def change(mount):
        opened = open_group(mount.path)["a"]
        opened[8:12, 3:8] += 1000
        opened.resize(shape)
        # Also in chunks at what was the edge, and in some that were not there.
        opened[-5:, -3:] = 7
        opened[10, 2] = 7
        after.append(opened[...])

    after = []
    said = nodes(changed(tmp_path / "some.zarr", change))["a"]
    assert "error" not in said
    assert said["metadata"] == [{"name": "shape", "before": [30, 20], "after": list(shape)}]
    both = tuple(slice(0, min(pair)) for pair in zip(before.shape, shape))
    # What came or went with the shape is told by the shape.
    wanted = expected_regions(before[both], after[0][both], stored_box(array))
    assert regions(said) == wanted != []


def test_texts_are_compared(changed, tmp_path):
    group = zarr.create_group(tmp_path / "some.zarr")
    before = np.array([f"text {'x' * (n % 7)}{n}" for n in range(60)], dtype=object).reshape(10, 6)
    array = group.create_array("a", shape=(10, 6), chunks=(5, 3), dtype="string")
    array[...] = before

    def change(mount):
        opened = open_group(mount.path)["a"]
        opened[1, 1] = "another text, and a longer one"
        opened[7:9, 4] = "short"
        # The same length.
        opened[3, 5] = "TEXT" + before[3, 5][4:]

    said = nodes(changed(tmp_path / "some.zarr", change))["a"]
    after = before.copy()
    after[1, 1], after[7:9, 4], after[3, 5] = "!", "!", "!"
    assert "error" not in said
    assert regions(said) == expected_regions(before, after, (5, 3))


# Nodes, attributes and metadata.


def test_diff_reports_nodes_attributes_and_metadata(kind, changed, tmp_path):
    store = tmp_path / "some.zarr"
    group = make_group(store, kind)
    group.attrs.update(title="before", gone=1, deep={"a": [1, 2]})
    for name in ("g/kept", "g/removed", "g/typed", "moved/in"):
        make_array(group, name, (10,), (3,), kind, dtype="<i4")[...] = np.arange(10)
    group["g/kept"].attrs["unit"] = "K"

    def change(mount):
        root = open_group(mount.path)
        root.attrs.update(title="after", new=None, deep={"a": [1, 3]})
        del root.attrs["gone"]
        root["g/kept"].attrs["unit"] = "C"
        del root["g/removed"]
        make_array(root, "g/typed", (10,), (3,), kind, dtype="<f8", overwrite=True)[...] = 5
        make_array(root, "made/array", (4,), (3,), kind, dtype="u1")[...] = 1
        (mount.path / "moved").rename(mount.path / "renamed")

    place = changed(store, change)
    said = nodes(place)
    attributes = [
        {"name": "deep", "before": {"a": [1, 2]}, "after": {"a": [1, 3]}},
        {"name": "gone", "before": 1},
        {"name": "new", "after": None},
        {"name": "title", "before": "before", "after": "after"},
    ]
    assert said.pop("") == {"change": "changed", "kind": "group", "attributes": attributes}
    unit = [{"name": "unit", "before": "K", "after": "C"}]
    assert said.pop("g/kept") == {"change": "changed", "kind": "array", "attributes": unit}
    typed = said.pop("g/typed")
    members = {member["name"]: member for member in typed["metadata"]}
    assert members["data_type"] == {"name": "data_type", "before": "int32", "after": "float64"}
    assert (typed["change"], typed["kind"], "error" in typed) == ("changed", "array", False)
    assert said == {
        "g/removed": {"change": "deleted", "kind": "array"},
        "made": {"change": "created", "kind": "group"},
        "made/array": {"change": "created", "kind": "array"},
        "moved": {"change": "deleted", "kind": "group"},
        "moved/in": {"change": "deleted", "kind": "array"},
        "renamed": {"change": "created", "kind": "group"},
        "renamed/in": {"change": "created", "kind": "array"},
    }
    text = zarrfs("diff", "--arrays", place, check=False).stdout
    for line in (
        'M group /\n    attributes deep: {"a":[1,2]} -> {"a":[1,3]}\n    attributes gone: removed 1\n',
        '    attributes new: added null\n    attributes title: "before" -> "after"\n',
        'M array /g/kept\n    attributes unit: "K" -> "C"\n',
        'D array /g/removed\n',
        'A array /renamed/in\n',
    ):
        assert line in text, text


@BY_TURNS
def test_a_group_takes_the_place_of_an_array(kind, changed, tmp_path):
    group = make_group(tmp_path / "some.zarr", kind)
    make_array(group, "a", (4,), (2,), kind, dtype="u1")[...] = 1
    group.create_group("b")

    def change(mount):
        root = open_group(mount.path)
        root.create_group("a", overwrite=True)
        make_array(root, "a/inside", (4,), (2,), kind, dtype="u1")
        del root["b"]
        make_array(root, "b", (4,), (2,), kind, dtype="u1")[...] = 1

    said = nodes(changed(tmp_path / "some.zarr", change))
    assert {path: (node["change"], node["kind"]) for path, node in said.items()} == {
        "a": ("changed", "group"),
        "a/inside": ("created", "array"),
        "b": ("changed", "array"),
    }
    assert {"name": "node_type", "before": "array", "after": "group"} in said["a"]["metadata"]


# Keys.


@pytest.mark.parametrize("seed, changed", [(0, "live"), (1, "unmounted"), (2, "live")], indirect=["changed"])
def test_diff_and_status_equal_the_difference_of_two_folders(seed, changed, tmp_path):
    random = np.random.default_rng(seed)
    store = tmp_path / "store"
    for number in range(40):
        write(store / f"{number % 3}/{number % 5}/{number}", b"%d" % number)
    plain = shutil.copytree(store, tmp_path / "plain")

    def change(mount):
        for _ in range(40):
            seed = int(random.integers(1 << 30))
            for folder in (plain, mount.path):
                change_one(folder, np.random.default_rng(seed))

    place = changed(store, change)
    before, after = files(store), files(plain)
    letters = {key: "A" for key in after.keys() - before.keys()}
    letters |= {key: "D" for key in before.keys() - after.keys()}
    letters |= {key: "M" for key in before.keys() & after.keys() if before[key] != after[key]}
    done = zarrfs("diff", place, check=False)
    told = dict(reversed(line.split(" ", 1)) for line in done.stdout.splitlines())
    # A key that was written again, or moved away and back, may be told though its bytes are the same.
    more = {key for key in told.keys() - letters.keys()}
    assert {key: told[key] for key in letters} == letters
    assert all(told[key] == "M" and before[key] == after[key] for key in more)
    status = json.loads(zarrfs("status", "--json", place).stdout)
    values = list(told.values())
    assert (status["put"], status["new"], status["erased"]) == (
        values.count("A") + values.count("M"),
        values.count("A"),
        values.count("D"),
    )


def write(path, bytes_):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes_)


def files(folder):
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def change_one(folder, random):
    """Writes, removes or renames a file or a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if ".zarrfs" not in path.parts]
    path = paths[random.integers(len(paths))]
    other = paths[random.integers(len(paths))]
    what = random.integers(5)
    if what == 0 and path.is_file():
        path.write_bytes(random.bytes(9))
    elif what == 1 and path.is_file():
        path.unlink()
    elif what == 2 and path.is_file() and other.is_file():
        path.replace(other)
    elif what == 3 and path != folder and not other.is_relative_to(path):
        path.rename((other if other.is_dir() else other.parent) / f"n{random.integers(1 << 20)}")
    elif what == 4:
        write((path if path.is_dir() else path.parent) / f"f{random.integers(9)}", random.bytes(5))
