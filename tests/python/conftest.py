"""Fixtures of the Python tests: mounts that always end, the corpus, and the table of its results."""

import json
import os
import shutil
import subprocess
from contextlib import ExitStack

import pytest

import corpus
import mounting
import needs

pytest_plugins = ["worker_warnings"]
TABLE = pytest.StashKey()


def pytest_configure(config):
    # pytest sets it for its own output; zarrfs would wrap what a test compares.
    os.environ.pop("COLUMNS", None)
    config.stash[TABLE] = []
    try:
        mounting.program()
    except SystemExit as absent:
        raise pytest.UsageError(absent) from None


def pytest_runtest_setup(item):
    """Every test but that of the servers mounts something."""
    if item.path.stem != "test_servers":
        needs.require("fuse", os.path.exists("/dev/fuse"))


@pytest.fixture
def mounted():
    """Mounts a store with `mounted(store, *options)` and returns its Mount; unmounts at the end."""
    with ExitStack() as mounts:
        yield lambda store, *options: mounts.enter_context(
            mounting.Mount(store, *options)
        )


@pytest.fixture
def daemon():
    """The same in the foreground: the daemon's process is `.process`."""
    with ExitStack() as mounts:
        yield lambda store, *options: mounts.enter_context(
            mounting.Daemon(store, *options)
        )


@pytest.fixture
def small(tmp_path):
    """Makes a file system of four megabytes."""
    needs.require("root", os.geteuid() == 0)
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def sample(tmp_path):
    """Returns a copy of the sample store climate.zarr, which a test may change."""
    return copy_of_sample("climate.zarr", tmp_path)


@pytest.fixture
def sample_v2(tmp_path):
    """Returns a copy of the sample store relief.zarr, which a test may change."""
    return copy_of_sample("relief.zarr", tmp_path)


def copy_of_sample(name, folder):
    return shutil.copytree(mounting.ROOT / "samples" / name, folder / name)


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory):
    """Returns the folder of the unpacked corpus."""
    needs.shared("corpus")
    folder = tmp_path_factory.mktemp("corpus")
    corpus.unpack(folder)
    return folder


def pytest_generate_tests(metafunc):
    """Gives `corpus_store` one value for each store of the corpus."""
    if "corpus_store" not in metafunc.fixturenames:
        return
    if corpus.FOLDER.is_dir():
        stores = corpus.by_store(corpus.entries())
        metafunc.parametrize("corpus_store", stores.items(), ids=stores.keys())
    else:
        # `corpus_folder` skips the test.
        metafunc.parametrize("corpus_store", [None])


@pytest.fixture
def corpus_results(request):
    """Returns the list of results that becomes the table after the last test."""
    return request.config.stash[TABLE]


def pytest_sessionfinish(session):
    """Hands the results of one of several processes to the one that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["corpus"] = json.dumps(session.config.stash[TABLE])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    rows = json.loads(getattr(node, "workeroutput", {}).get("corpus", "[]"))
    node.config.stash[TABLE].extend(corpus.Result(*row) for row in rows)


def pytest_terminal_summary(terminalreporter, config):
    results = config.stash[TABLE]
    if results:
        terminalreporter.section("corpus")
        for line in corpus.table(results):
            terminalreporter.write_line(line)
