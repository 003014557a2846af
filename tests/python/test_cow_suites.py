"""Suites of ../shared on mounts with --cow, in a size that CI has time for; scripts/suites runs all of them."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import mounting
import needs
from test_cow import cow, store, upper  # noqa: F401

PROGRAMS = mounting.ROOT / ".suites" / "bin"

# How often, and with how many operations, fsx runs.
FSX_SEEDS, FSX_OPERATIONS = 3, 800


@pytest.fixture
def suites():
    return needs.shared("suites")


def test_zarr_pythons_own_tests_pass(suites, store, cow, tmp_path):
    """ZARRFS_TEST_EXAMPLES (5) and ZARRFS_TEST_STEPS (20) set the length of the state machine's runs."""
    mount = cow(store)
    environment = {
        **os.environ,
        "ZARR_MOUNT": str(mount.path),
        "EXAMPLES": os.environ.get("ZARRFS_TEST_EXAMPLES", "5"),
        "STEPS": os.environ.get("ZARRFS_TEST_STEPS", "20"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c"]
        + [str(suites / "pytest.ini"), str(suites / "test_zarr_on_mount.py")],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_programs_of_the_suites_work(suites, store, cow, tmp_path):
    """ZARRFS_TEST_SUITES chooses the suites (scripts/suites runs all); rsync and git are in test_cow."""
    wanted = os.environ.get("ZARRFS_TEST_SUITES", "misc tar sqlite").split()
    for suite, name in {"rsync": "rsync", "git": "git", "sqlite": "sqlite3"}.items():
        if suite in wanted:
            needs.require(name, shutil.which(name) is not None)
    mount = cow(store)
    done = subprocess.run(
        [sys.executable, str(suites / "posix_suites.py"), str(mount.path), str(tmp_path)]
        + wanted,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^suite (\w+) +passed=(\d+) failed=0", done.stdout, re.M)
    assert [name for name, _ in found] == wanted, done.stdout


def program(name):
    """Returns where a suite of the Rust registry is, which `scripts/setup suites` builds, and only root can run."""
    needs.require("root", os.geteuid() == 0)
    path = shutil.which(name, path=f"{PROGRAMS}:{os.environ['PATH']}")
    needs.require(name, path is not None)
    return path


def test_pjdfstest_fails_only_on_refused_operations(suites, store, cow, tmp_path):
    program("pjdfstest")
    mount = cow(store, "--allow-other")
    # The user that the suite makes has to come by.
    os.chmod(mount.path.parent, 0o755)
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, str(suites / "posix_suites.py"), mount.path, tmp_path, "pjdfstest"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert re.search(r"^suite pjdfstest +passed=[12]\d\d ", done.stdout), done.stdout + done.stderr
    log = re.sub(r"\x1b\[[0-9;]*m", "", (tmp_path / "pjdfstest.log").read_text(errors="replace"))
    failed = re.findall(r"^(\S+::\S+)\s+FAILED\s*$", log, re.M)
    listed = (pathlib.Path(__file__).parent / "pjdfstest_refused").read_text().splitlines()
    refused = re.compile("|".join(line for line in listed if not line.startswith("#")))
    assert [test for test in failed if not refused.search(test)] == []


def test_fsx_finds_no_wrong_data(suites, store, cow, tmp_path):
    fsx = program("fsx")
    mount = cow(store)
    for seed in range(FSX_SEEDS):
        done = subprocess.run(
            [fsx, "-q", "-f", suites / "fsx.toml", "-N", str(FSX_OPERATIONS), "-S", str(seed)]
            + ["-P", tmp_path, mount.path / "fsx"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
