"""Warnings as the processes of a test run tell of them: none needs an import in the process that hears of it.

pytest-xdist imports the module of a warning's class in one thread per worker. Two threads that import one package at
once can find it half imported, and that error ends the run. What crosses has the nearest class of Python's own.
"""

import builtins

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message):
    category = warning_message.category
    if category.__module__ != builtins.__name__:
        known = next(base for base in category.__mro__ if base.__module__ == builtins.__name__)
        warning_message.category = known
        warning_message.message = known(f"{category.__name__}: {warning_message.message}")
