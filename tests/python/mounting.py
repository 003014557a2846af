"""Mounts stores with the built program; shared by the tests, scripts/corpus and scripts/bench.

The program is $ZARRFS, else target/release/zarrfs. What is mounted is always unmounted again, also when the
program fails to do it.
"""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60


def program():
    """Returns the path of the built program; SystemExit with a sentence when there is none."""
    path = Path(os.environ.get("ZARRFS") or ROOT / "target/release/zarrfs").resolve()
    if not path.is_file():
        raise SystemExit(
            f"{path} does not exist: run `cargo build --release`, or set ZARRFS"
        )
    return str(path)


def zarrfs(*arguments, check=True, environment=None, limit=LIMIT):
    """Runs the program and returns the finished process with its output as text; TimeoutExpired after `limit`
    seconds."""
    done = subprocess.run(
        [program(), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment,
    )
    if check and done.returncode != 0:
        words = " ".join(map(str, arguments))
        raise AssertionError(
            f"zarrfs {words}: status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done


def is_mounted(directory):
    """Says whether something is mounted at `directory`; asks the kernel's table, never the mount."""
    return any(point == os.fspath(directory) for point, _ in mounts())


def mounts():
    """Returns (mount point, file system type) of everything that is mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = []
    for line in lines:
        left, right = line.split(" - ")
        point = re.sub(
            r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), left.split()[4]
        )
        found.append((point, right.split()[0]))
    return found


def wait_until(condition, seconds=10.0, pause=0.02):
    """Waits for `condition()` to be true; returns its last answer."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(pause)


def lazy_unmount(directory):
    """Takes a mount away without asking its daemon."""
    if is_mounted(directory):
        for command in (["umount", "-l"], ["fusermount3", "-uz"]):
            subprocess.run([*command, str(directory)], capture_output=True)


class Mount:
    """A store, a path or a URL, mounted at a temporary folder for the length of a `with`; the program gets
    `environment`, or this process's own."""

    def __init__(self, store, *options, environment=None):
        self.store = store if "://" in str(store) else Path(store)
        self.options = options
        self.environment = environment
        self.folder = tempfile.TemporaryDirectory(prefix="zarrfs-mount-")
        self.path = Path(self.folder.name).resolve()

    def __enter__(self):
        try:
            command = ["mount", *self.options, self.store, self.path]
            zarrfs(*command, environment=self.environment)
        except BaseException:
            self.clean()
            raise
        return self

    def __exit__(self, *_):
        try:
            if is_mounted(self.path):
                zarrfs("umount", self.path)
            assert not is_mounted(self.path), f"{self.path} is still mounted"
        finally:
            self.clean()

    def clean(self):
        """Leaves nothing behind, whatever went wrong."""
        lazy_unmount(self.path)
        self.folder.cleanup()

    @property
    def files(self):
        """The files view, reached through the control directory."""
        return self.path / ".zarrfs" / "files"


class Daemon(Mount):
    """The same in the foreground, so that the daemon's process is known."""

    def __enter__(self):
        # A file, since a pipe that nobody reads would stop a daemon that complains a lot.
        self.said = tempfile.TemporaryFile("w+")
        command = [program(), "mount", "-f", *map(str, self.options)]
        self.process = subprocess.Popen(
            [*command, str(self.store), str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            env=self.environment,
        )

        def started():
            return is_mounted(self.path) or self.process.poll() is not None

        wait_until(started, LIMIT)
        if self.process.poll() is not None or not is_mounted(self.path):
            self.kill()
            raise AssertionError(f"did not mount {self.store}: {self.complaints()}")
        os.stat(self.path)
        return self

    def __exit__(self, *_):
        try:
            if self.process.poll() is None:
                zarrfs("umount", self.path)
                self.process.wait(LIMIT)
        finally:
            self.kill()

    def kill(self):
        """Ends the daemon, however it is, and takes its mount away."""
        self.process.kill()
        self.process.wait()
        self.clean()

    def complaints(self):
        """Returns what the daemon has written to its standard error so far."""
        self.said.seek(0)
        return self.said.read()

    def cpu_seconds(self):
        """Returns the daemon's CPU time so far: user and system, all threads."""
        return sum(self.cpu_times())

    def cpu_times(self):
        """Returns the daemon's CPU seconds so far in its own code and in the kernel, all threads."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]]

    def peak_bytes(self):
        """Returns the most memory that the daemon ever had resident."""
        return self.memory_bytes("VmHWM")

    def resident_bytes(self):
        """Returns the memory that the daemon has resident now."""
        return self.memory_bytes("VmRSS")

    def own_bytes(self):
        """Returns the memory that the daemon has resident now and shares with nobody: not that of its program."""
        return self.memory_bytes("RssAnon")

    def memory_bytes(self, field):
        """Returns a field of the daemon's status that counts memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) * 1024
