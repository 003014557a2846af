"""Warnings of classes that only the worker of a test run can import."""

import subprocess
import sys
from pathlib import Path

CASE = """
import sys, types, warnings
module = types.ModuleType("absent_elsewhere")
class Odd(RuntimeWarning):
    __module__ = module.__name__
module.Odd, sys.modules[module.__name__] = Odd, module
def test_warns():
    warnings.warn(Odd("seven"))
"""


def test_a_warning_class_that_only_a_worker_knows_does_not_end_the_run(tmp_path):
    (tmp_path / "test_case.py").write_text(CASE)
    arguments = ["-q", "-n", "2", "-p", "worker_warnings", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RuntimeWarning: Odd: seven" in done.stdout
