"""Each package is installed from nothing, tried, and removed without a trace.

The packages are those in $ZARRFS_PACKAGES, as `scripts/package --verify` has made them, or are made of the program that is
tested. The one for Debian is installed in a root of its own, made by mmdebstrap, which needs Debian's packages.
"""

import fcntl
import glob
import json
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import mounting
import needs
import pytest

PYTHON = "/usr/bin/python3"
USER = "nobody"
LOCK = mounting.ROOT / "target/package.lock"

# What each place is asked, as a shell types it; $sample is a store that everybody can read. Each line must say something.
TRIAL = r"""
set -eu
zarrfs --version
man -P cat zarrfs-mount | grep -c -e --write-through
bash -c 'shopt -s extglob progcomp; source "$1"; COMP_WORDS=(zarrfs mount --write); COMP_CWORD=2; COMPREPLY=()
    _zarrfs zarrfs --write mount; echo "${COMPREPLY[*]}"' - "$completions"
dir=$(mktemp -d)
zarrfs mount "$sample" "$dir" | sed -n 1p
od -A n -t f4 -N 4 "$dir/.zarrfs/files/tas/tas.raw"
zarrfs umount "$dir"
rmdir "$dir"
"""


def run(*command, **options):
    """Runs a command; returns its output, or fails with all that it said."""
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def check_trial(text):
    """Checks what a trial has printed: the version, the manual, the completed option, the mount and the first element."""
    version, found, option, mounted, element = text.strip().splitlines()
    assert version.startswith("zarrfs ") and int(found) >= 1
    assert option.strip() == "--write-through"
    assert "7 arrays in 2 groups" in mounted
    assert float(element) == 266.0


@pytest.fixture(scope="session")
def stripped(tmp_path_factory):
    """Returns the program that is tested without what a debugger wants, which is most of it and takes long to pack."""
    program = tmp_path_factory.mktemp("stripped") / "zarrfs"
    run("strip", "-o", program, mounting.program())
    return program


@pytest.fixture(scope="session")
def packages(tmp_path_factory, request):
    """Returns the folder of the packages; those of target/package, which somebody may want to keep, are left alone."""
    ready = os.environ.get("ZARRFS_PACKAGES")
    if ready:
        return Path(ready)
    folder = tmp_path_factory.mktemp("packages")
    # Whatever the mask of whoever makes them, everybody can read what root installs.
    make = [mounting.ROOT / "scripts/package", "--program", request.getfixturevalue("stripped"), "wheel", "deb", "tar"]
    run(*make, umask=0o077, env={**os.environ, "ZARRFS_PACKAGE_OUT": str(folder)})
    return folder


@pytest.fixture
def home(tmp_path_factory):
    """Returns the home folder of an ordinary user, with a store."""
    needs.require("root", os.geteuid() == 0)
    needs.require("fuse3", shutil.which("fusermount3"))
    folder = Path(run("mktemp", "-d", "/tmp/zarrfs-home-XXXXXX").strip())
    shutil.copytree(mounting.ROOT / "samples/climate.zarr", folder / "sample.zarr")
    run("chown", "-R", USER, folder)
    yield folder
    for point, _ in mounting.mounts():
        if point.startswith(f"{folder}/"):
            mounting.lazy_unmount(point)
    shutil.rmtree(folder)


def as_user(home, script, **variables):
    """Runs a script as an ordinary user, with nothing on the PATH but the system and what `home` has, and with a device
    of FUSE that everybody may open."""
    as_root = """
        mount -t tmpfs -o dev,mode=755 tmpfs /mnt
        mknod -m 666 /mnt/fuse c 10 229
        mount --bind /mnt/fuse /dev/fuse
        exec setpriv --reuid nobody --regid nogroup --clear-groups bash -c "$1"
    """
    environment = {
        "HOME": home,
        "PATH": f"{home}/.local/bin:{home}/venv/bin:/usr/bin:/bin",
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "sample": home / "sample.zarr",
        **variables,
    }
    environment = {name: str(value) for name, value in environment.items()}
    return run("unshare", "--mount", "bash", "-euc", as_root, "-", script, cwd=home, env=environment)


def tree(folder):
    """Returns every path below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def the(packages, pattern):
    """Returns the package of a pattern; skips the test where `scripts/package --verify KIND` was asked for others alone."""
    found = glob.glob(str(packages / pattern))
    if not found and "ZARRFS_PACKAGES" in os.environ:
        needs.skip(pattern)
    [found] = found
    return Path(found)


def unpack(packages, folder):
    """Unpacks the archive; returns the folder that it has."""
    run("tar", "-xzf", the(packages, "*.tar.gz"), "-C", folder)
    return the(folder, "zarrfs-*-linux")


def modes(folder):
    """Returns the modes of what is below a folder, without links."""
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if not path.is_symlink()}


def installed_in(prefix):
    """Returns the path of each file below a prefix, with its mode or with where it leads."""
    files = [path for path in prefix.rglob("*") if path.is_symlink() or path.is_file()]
    told = {path: os.readlink(path) if path.is_symlink() else oct(path.stat().st_mode) for path in files}
    return sorted((str(path.relative_to(prefix)), what) for path, what in told.items())


def make(program, folder, *words, check=True, **variables):
    """Has the archive made of a program in a folder; returns the finished process."""
    command = [mounting.ROOT / "scripts/package", "--program", program, *words, "tar"]
    environment = {**os.environ, "ZARRFS_PACKAGE_OUT": str(folder), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def test_a_folder_with_other_files_is_not_emptied(tmp_path, stripped):
    for names in (["kept"], ["tree"], [".kept"], ["tree", "zarrfs_1_all.deb"]):
        folder = tmp_path / "-".join(names)
        for name in names:
            (folder / name).mkdir(parents=True)
        # While another one makes packages, too.
        LOCK.parent.mkdir(exist_ok=True)
        with open(LOCK, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = make(stripped, folder, check=False)
        assert done.returncode == 1, names
        assert f"{folder} is not empty, and not a folder of this script: it has " in done.stderr
        assert sorted(os.listdir(folder)) == names


def test_a_folder_of_packages_keeps_other_files(tmp_path, stripped):
    make(stripped, tmp_path)
    made = sorted(os.listdir(tmp_path))
    (tmp_path / "zarrfs-0.0.1-x86_64-linux.tar.gz").touch()
    make(stripped, tmp_path)
    assert sorted(os.listdir(tmp_path)) == made
    (tmp_path / "notes.txt").touch()
    done = make(stripped, tmp_path, check=False)
    assert done.returncode == 1
    assert f"{tmp_path} has notes.txt, which is not of this script: nothing was removed" in done.stderr
    assert sorted(os.listdir(tmp_path)) == sorted([*made, "notes.txt"])


def test_the_tests_of_packages_may_make_packages(tmp_path, stripped):
    """The tests of `--verify` need the lock; a plugin of pytest reports whether it is free, and runs no tests."""
    probe = f"""
        import fcntl, pathlib

        def pytest_configure(config):
            with open("{LOCK}", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pathlib.Path("{tmp_path}/is-free").touch()
    """
    (tmp_path / "probe.py").write_text(textwrap.dedent(probe))
    options = {"PYTEST_ADDOPTS": "-p probe --collect-only", "PYTHONPATH": str(tmp_path)}
    make(stripped, tmp_path / "packages", "--verify", **options)
    assert (tmp_path / "is-free").exists()


def test_the_wheel_needs_no_rust_and_no_root(packages, home):
    wheel = shutil.copy(the(packages, "*.whl"), home)
    run(PYTHON, "-m", "venv", home / "venv")
    before = tree(home / "venv")
    run("chown", "-R", USER, home)
    assert as_user(home, "command -v cargo rustc || echo none") == "none\n"
    as_user(home, f"pip install --quiet --no-index --no-compile --disable-pip-version-check {wheel}")
    completions = home / "venv/share/bash-completion/completions/zarrfs"
    check_trial(as_user(home, TRIAL, completions=completions))
    script = (
        "import os, struct, zarrfs\n"
        "with zarrfs.mount(os.environ['sample'], memory='64M') as mounted:\n"
        "    print(zarrfs.program(), struct.unpack('<f', (mounted.files / 'tas/tas.raw').open('rb').read(4))[0])\n"
    )
    assert as_user(home, f'python -c "{script}"').split() == [f"{home}/venv/bin/zarrfs", "266.0"]
    assert as_user(home, "python -m zarrfs --version").startswith("zarrfs ")
    as_user(home, "pip uninstall --quiet --yes zarrfs; find venv -name __pycache__ -prune -exec rm -r {} +")
    left = [path for path in tree(home / "venv") if path not in before and "__pycache__" not in path]
    # pip leaves folders that it has made outside of packages.
    assert [path for path in left if not (home / "venv" / path).is_dir()] == []
    assert not mounting.is_mounted(home)


def test_the_archive_installs_into_a_home_folder(packages, home):
    unpacked = unpack(packages, home)
    run("chown", "-R", USER, home)
    before = tree(home)
    said = as_user(home, f"{unpacked}/install.sh")
    assert f"is installed in {home}/.local" in said and "install.sh --remove removes it" in said
    installed = tree(home / ".local")
    assert "bin/zarrfs" in installed and not any(path.startswith(("lib", "sbin")) for path in installed)
    check_trial(as_user(home, TRIAL, completions=home / ".local/share/bash-completion/completions/zarrfs"))
    # Once more, over itself.
    as_user(home, f"{unpacked}/install.sh")
    assert tree(home / ".local") == installed
    as_user(home, "sh ~/.local/share/zarrfs/install.sh --remove")
    assert tree(home) == before


def test_the_installer_keeps_files_of_other_programs(packages, home):
    unpacked = unpack(packages, home)
    prefix = home / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/zarrfs").write_text("mine")
    before = tree(prefix)
    done = subprocess.run([unpacked / "install.sh", "--prefix", prefix], capture_output=True, text=True)
    assert done.returncode == 1 and f"{prefix}/bin/zarrfs is there already" in done.stderr
    assert tree(prefix) == before
    (prefix / "bin/zarrfs").unlink()
    # As root, with what only the system uses; the unit names the program where it is.
    run(unpacked / "install.sh", "--prefix", prefix)
    assert f"ExecStart={prefix}/bin/zarrfs mount" in (prefix / "lib/systemd/system/zarrfs@.service").read_text()
    assert os.readlink(prefix / "sbin/mount.zarrfs") == "../bin/zarrfs"
    run("sh", prefix / "share/zarrfs/install.sh", "--remove", "--prefix", prefix)
    assert tree(prefix) == ["bin"]


def test_every_user_can_read_files_that_root_installs(packages, home):
    unpacked = unpack(packages, home)
    assert modes(unpacked) == {0o644, 0o755}
    prefix = home / "prefix"
    run(unpacked / "install.sh", "--prefix", prefix, umask=0o077)
    assert modes(prefix) == {0o644, 0o755}
    (home / "deb").mkdir()
    run("dpkg-deb", "--extract", the(packages, "*.deb"), home / "deb")
    assert modes(home / "deb") == {0o644, 0o755}


@pytest.mark.parametrize("copies, moment", [(2, "before"), (5, "before"), (3, "after"), (4, "after")])
def test_an_interrupted_installation_is_removed_or_repeated(packages, home, copies, moment):
    """The third copied file cannot be executed; the fourth is a link that is broken where it is created."""
    unpacked = unpack(packages, home)
    prefix = home / "prefix"
    run(unpacked / "install.sh", "--prefix", prefix)
    whole = installed_in(prefix)
    run("sh", prefix / "share/zarrfs/install.sh", "--remove", "--prefix", prefix)
    command = home / "commands/cp"
    command.parent.mkdir()
    # It ends the installer, as a machine that is switched off would.
    command.write_text(f'''#!/bin/sh
        echo >>"$0.count"
        [ "$(wc -l <"$0.count")" -ge {copies} ] || exec /bin/cp "$@"
        [ {moment} = before ] || /bin/cp "$@"
        kill -KILL $PPID
    ''')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"

    def cut():
        (home / "commands/cp.count").unlink(missing_ok=True)
        done = subprocess.run([unpacked / "install.sh", "--prefix", prefix], env={**os.environ, "PATH": path})
        assert done.returncode == -9 and len(tree(prefix)) > 2

    for _ in range(2):
        cut()
        run("sh", prefix / "share/zarrfs/install.sh", "--remove", "--prefix", prefix)
        assert tree(prefix) == []
    cut()
    run(unpacked / "install.sh", "--prefix", prefix)
    assert installed_in(prefix) == whole
    run("sh", prefix / "share/zarrfs/install.sh", "--remove", "--prefix", prefix)
    assert tree(prefix) == []


def sources_of(release, folder):
    """Returns a file of where the packages of a release of Debian are: where this machine has its own."""
    given = [*Path("/etc/apt/sources.list.d").glob("debian*"), Path("/etc/apt/sources.list")]
    file = next(path for path in given if path.is_file())
    here = re.search(r"^VERSION_CODENAME=(.*)$", Path("/etc/os-release").read_text(), re.MULTILINE)[1]
    copy = folder / file.name
    copy.write_text(re.sub(rf"\b{here}\b", release, file.read_text()))
    return copy


@pytest.fixture(scope="session", params=["bookworm", "trixie"])
def debian(request, tmp_path_factory):
    """Returns a root of a release of Debian with what the trial needs, but without fuse3 and zarrfs."""
    needs.require("root", os.geteuid() == 0)
    needs.require("mmdebstrap", shutil.which("mmdebstrap"))
    folder = tmp_path_factory.mktemp("debian")
    root = folder / "root"
    run(
        "mmdebstrap", "--quiet", "--variant=apt", "--include=man-db,mount",
        "--dpkgopt=force-unsafe-io", request.param, root, sources_of(request.param, folder),
    )  # fmt: skip
    yield root
    shutil.rmtree(root)


def in_root(root, given, script, **variables):
    """Runs a script as root of a root folder, in namespaces that end with it; `given` is at /tmp/given."""
    inside = """
        set -eu
        mount --make-rprivate /
        mount -t proc proc "$1/proc"
        mount --bind /dev "$1/dev"
        mount -t tmpfs tmpfs "$1/tmp"
        mkdir "$1/tmp/given"
        mount --bind "$2" "$1/tmp/given"
        exec chroot "$1" bash -c "$3"
    """
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **variables}
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return run(
        "unshare", "--mount", "--pid", "--fork", "bash", "-c", inside, "-", root, given, script,
        env={**proxies, **environment},
    )  # fmt: skip


def test_the_package_of_debian_is_installed_and_removed(packages, home, debian):
    shutil.copy(the(packages, "*.deb"), home / "zarrfs.deb")
    script = """
        exec 3>&1 >&2
        listed() { find / -xdev -path /var -prune -o -path /proc -prune -o -path /root -prune -o -path /run -prune -o -print | sort; }
        wanted=/etc/systemd/system/multi-user.target.wants
        mkdir -p $wanted
        listed >/tmp/before
        apt-get install -y --no-install-recommends /tmp/given/zarrfs.deb
        test -x /usr/sbin/mount.zarrfs && test -f /usr/lib/systemd/system/zarrfs@.service
        grep -q ExecStart=/usr/bin/zarrfs /usr/lib/systemd/system/zarrfs@.service
        export sample=/tmp/given/sample.zarr completions=/usr/share/bash-completion/completions/zarrfs
        bash -c "$trial" >&3
        mkdir /tmp/a && mount -t zarrfs "$sample" /tmp/a && cat /tmp/a/zarr.json && umount /tmp/a
        dpkg-deb --field /tmp/given/zarrfs.deb Recommends | grep 'fuse3, ca-certificates'
        # As systemctl enable does it.
        ln -s /lib/systemd/system/zarrfs@.service $wanted/zarrfs@climate.service
        apt-get purge -y zarrfs
        listed >/tmp/after
        diff /tmp/before /tmp/after
    """
    check_trial(in_root(debian, home, script, trial=TRIAL))


@pytest.mark.parametrize("pattern", ["*.whl", "*.deb", "*.tar.gz", "tree/bin/zarrfs"])
def test_a_package_is_tried_without_an_installation(packages, tmp_path, pattern):
    sample = mounting.ROOT / "samples/climate.zarr"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [mounting.ROOT / "scripts/try", "--from", the(packages, pattern), sample, tmp_path / "mount"]
    said = run(*command, env=environment)
    assert "Building" not in said and f"{sample} stays mounted" in said
    program = said.strip().splitlines()[-1].split()[0]
    run(program, "umount", tmp_path / "mount")


def test_an_idle_mount_takes_little_memory():
    with mounting.Mount(mounting.ROOT / "samples/climate.zarr") as mount:
        pid = json.loads((mount.path / ".zarrfs/mount.json").read_text())["pid"]

        def held(field):
            status = Path(f"/proc/{pid}/status").read_text()
            return int(re.search(field + r":\s+(\d+) kB", status)[1]) * 1024

        # What the start took of the program is given back once the mount is there.
        most = held("VmHWM") - 1_000_000
        assert mounting.wait_until(lambda: held("VmRSS") < most), held("VmRSS")
        # The rest are pages of the program and of the C library, which all mounts share. A program with lines for
        # backtraces has more to relocate.
        if Path(mounting.program()).stat().st_size < 24 << 20:
            assert held("RssAnon") < 4_000_000
            assert held("VmRSS") < 13_000_000


def test_the_program_needs_no_newer_libc_than_its_wheel_says(packages):
    wheel = the(packages, "*.whl")
    # Beside the tag by number there may be its old name, manylinux2014.
    tags = wheel.stem.split("-")[-1].split(".")
    [tag] = [tag for tag in tags if not tag.startswith("manylinux2")]
    symbols = run("objdump", "-T", packages / "tree/bin/zarrfs")
    newest = max(
        tuple(map(int, word.split("GLIBC_")[1].rstrip(")").split(".")))
        for word in symbols.split()
        if "GLIBC_" in word and word.split("GLIBC_")[1][0].isdigit()
    )
    if tag.startswith("manylinux_"):
        assert newest <= tuple(map(int, tag.split("_")[1:3]))
    else:
        assert tag.startswith("linux_") and newest > (2, 2)
