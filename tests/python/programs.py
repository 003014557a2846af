"""Programs that scripts/setup unpacks into .tools instead of installing them, and classes of Java."""

import os
import shutil
from pathlib import Path

import needs
from mounting import ROOT

SOURCE = " (scripts/setup tools installs it)"


def unpacked(name):
    """Returns the path of a program and the environment that it needs; fails the test where it is missing."""
    found = shutil.which(name)
    if found:
        return found, dict(os.environ)
    folder = ROOT / ".tools" / name / "usr"
    needs.require(name, (folder / "bin" / name).is_file(), source=SOURCE)
    libraries = {str(path.parent) for path in folder.glob("lib/**/*.so*")}
    return str(folder / "bin" / name), {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def java(name, *words):
    """Returns a class of Java of this process, which runs without a screen; `words` are what a test needs for it."""
    import jpype

    jars = {"imagej": "ij.jar", "nom.tam.fits": "fits.jar"}
    for word in words:
        needs.require(word, (Path("/usr/share/java") / jars[word]).exists(), source=SOURCE)
    if not jpype.isJVMStarted():
        # All of them, since a process starts Java once.
        paths = [f"/usr/share/java/{jar}" for jar in jars.values()]
        jpype.startJVM("-Djava.awt.headless=true", "-Xmx256m", "-Xrs", classpath=paths)
    return jpype.JClass(name)
