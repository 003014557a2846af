"""The documents: links resolve, commands run and print what the page shows, and manual pages fit a terminal."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import mounting
import needs

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md"))]
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!\!)\[[^]]+\]\(([^)\s]+)\)")


def name_of(path):
    return str(path.relative_to(ROOT))


def anchors(text):
    """Returns the anchors of the headings, as GitHub and mdBook make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_targets_of_links_exist(path):
    text = BLOCK.sub("", path.read_text())
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} is missing"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked.read_text()), f"{target}: no such heading"


def test_the_book_has_every_page():
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    listed = {(ROOT / "docs" / target).resolve() for target in LINK.findall(summary)}
    assert listed == {path for path in PAGES if path.name != "SUMMARY.md"}


def script_of(text):
    """Returns a script of all blocks that run, and the outputs that the page shows, by the number of the block."""
    lines, shown = ["set -e"], {}
    for place, (language, more, body) in enumerate(BLOCK.findall(text)):
        # scripts/notebook runs cells: see test_a_notebook_prints_what_it_shows.
        is_run = "not-run" not in more and "cell" not in more
        if not is_run or language not in ("sh", "console", "python"):
            continue
        lines.append(f"printf '\\001{place}\\n'")
        if language == "python":
            lines.append(f"python3 - <<'END_OF_BLOCK'\n{body}END_OF_BLOCK")
        elif language == "sh":
            lines.append(body)
        else:
            typed = re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.M)
            lines.extend(typed)
            rest = re.sub(r"^\$ (?:.*\\\n)*.*\n", "", body, flags=re.M)
            shown[place] = [line for line in rest.splitlines() if line.strip() and line.strip() != "..."]
    return "\n".join(lines), shown


RUN = [path for path in [*PAGES, ROOT / "README.md"] if len(script_of(path.read_text())[0].splitlines()) > 1]


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_commands_print_what_the_page_shows(path, tmp_path):
    needs.require("root", os.geteuid() == 0)
    needs.require("fuse", os.path.exists("/dev/fuse"))
    script, shown = script_of(path.read_text())
    here, programs = tmp_path / "here", tmp_path / "bin"
    here.mkdir()
    programs.mkdir()
    (programs / "zarrfs").symlink_to(mounting.program())
    subprocess.run(["cp", "-r", ROOT / "samples", here], check=True)
    # The repository of the pages about Icechunk.
    subprocess.run(["tar", "-xzf", ROOT / "tests/data/icechunk/weather2.tar.gz", "-C", tmp_path], check=True)
    (tmp_path / "repo").rename(here / "weather")
    environment = {
        **os.environ,
        "PATH": f"{programs}:{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(ROOT / "python"),
    }
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=here,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=180,
            errors="replace",
        )
    finally:
        mounts = Path("/proc/self/mounts").read_text().split("\n")
        for left in [line.split(" ")[1] for line in mounts if str(here) in line]:
            subprocess.run(["umount", "-l", left])
    assert done.returncode == 0, done.stdout
    # The pages have /data for the directory in which a user works.
    printed = done.stdout.replace(str(here), "/data")
    printed = dict(part.partition("\n")[::2] for part in printed.split("\001")[1:])
    for place, lines in shown.items():
        output = printed[str(place)]
        words = output.split()
        for line in lines:
            assert line.split()[0] in words, f"{line!r} is not in:\n{output}"
    left = [line for line in mounts if str(here) in line]
    assert not left, "the page does not unmount"


def test_a_notebook_prints_what_it_shows():
    needs.require("root", os.geteuid() == 0)
    needs.require("fuse", os.path.exists("/dev/fuse"))
    command = [ROOT / "scripts/notebook", "--check", mounting.program()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def manual():
    for name in ("pandoc", "man"):
        needs.require(name, shutil.which(name) is not None)
    subprocess.run([ROOT / "scripts/docs", "man"], check=True)
    return ROOT / "target/man"


def test_manual_pages_fit_a_terminal(manual):
    pages = sorted(manual.glob("man?/*"))
    assert len(pages) > 25
    for page in pages:
        command = ["man", "--warnings", "--local-file", "-E", "ascii", page]
        done = subprocess.run(command, env={**os.environ, "MANWIDTH": "80", "MAN_KEEP_FORMATTING": ""}, capture_output=True, text=True)
        assert done.stderr == "", f"{page.name}: {done.stderr}"
        assert re.search(r"^NAME\n +\S+ +-", done.stdout, re.M), page.name
        # Examples are indented further, and are not filled.
        wide = [line for line in done.stdout.splitlines() if len(line) > 80 and not line.startswith(" " * 11)]
        assert not wide, f"{page.name}: {wide[0]}"
