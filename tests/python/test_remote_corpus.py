"""The stores of the corpus read from servers: the manifest's bytes, and the keys as they are on disk."""

import re
import subprocess
from pathlib import Path

import pytest

import corpus
import places

# Index pages of nginx leave out names that begin with a dot: these nodes, and documents of v2 beside a zarr.json, are
# there by name.
UNLISTED_BY_NGINX = ["zarr-python-3.0/names.zarr/n/.hidden", "zarr-python-3.0/names.zarr/n/.zarray_"]
DOCUMENTS = ("zarr.json", ".zgroup", ".zarray")


@pytest.fixture(scope="module")
def corpus_at(corpus_folder):
    """Returns a function that gives a place of that name with the whole corpus, uploaded once."""
    made = {}

    def place(name):
        if name not in made:
            new = places.PLACES[name]()
            new.upload(corpus_folder)
            made[name] = new
        return made[name]

    return place


@pytest.fixture(scope="module", params=["s3", "nginx-autoindex"])
def whole(request, corpus_at):
    """Returns a place that lists, and one mount of the whole corpus there."""
    place = corpus_at(request.param)
    with place.mount() as mount:
        yield place, mount


def faults(entries, files, store):
    """Returns a line for each entry that does not read as the manifest says."""
    results = [corpus.check(entry, files, store) for entry in entries]
    return [
        f"{result.entry['id']}: {result.status}: {result.detail}"
        for result in results
        if result.status in ("wrong", "error")
    ]


def below(entry, name):
    """Returns an entry as it is named from the parent of all stores."""
    return {**entry, "array": f"/{name}{entry['array']}".rstrip("/")}


def test_arrays_are_read_from_servers_that_list(corpus_store, whole):
    name, entries = corpus_store
    place, mount = whole
    if entries[0]["store_kind"] == "zip":
        with place.mount(under=name) as archive:
            assert not faults(entries, archive.files, archive.store)
        return
    entries = [below(entry, name) for entry in entries]
    assert not faults(entries, mount.files, mount.store)


def test_remote_keys_equal_those_on_disk(whole, corpus_folder):
    place, mount = whole
    hides_dots = isinstance(place, places.Web)
    left_out = [corpus_folder / path for path in UNLISTED_BY_NGINX] if hides_dots else []
    by_name = [file for path in left_out for file in path.rglob("zarr.json")]
    excluded = [f"--exclude={path.name}" for path in left_out]
    diff = subprocess.run(
        ["diff", "-r", *excluded, corpus_folder, mount.path], capture_output=True, text=True
    )
    differences = []
    for line in diff.stdout.splitlines():
        only = re.fullmatch(r"Only in (.+): (\.z.+)", line)
        if hides_dots and only and Path(only[1], "zarr.json").is_file():
            by_name.append(Path(only[1], only[2]))
        else:
            differences.append(line)
    assert (differences, diff.stderr) == ([], "")
    for file in by_name:
        there = mount.path / file.relative_to(corpus_folder)
        assert there.read_bytes() == file.read_bytes(), there


def is_reachable(store, entry):
    """Says whether a node is found by asking for documents by name alone, from the root on."""
    if entry["store_kind"] == "zip":
        return True
    if entry["dialect"] not in ("v2", "v3"):
        return False
    folders = [store]
    for name in filter(None, entry["array"].split("/")):
        folders.append(folders[-1] / name)
    return all(any((folder / name).is_file() for name in DOCUMENTS) for folder in folders)


def test_arrays_are_read_from_a_server_that_does_not_list(corpus_store, corpus_at, corpus_folder):
    name, entries = corpus_store
    entries = [entry for entry in entries if is_reachable(corpus_folder / name, entry)]
    if not entries:
        return
    with corpus_at("nginx").mount(under=name) as mount:
        assert not faults(entries, mount.files, mount.store)
