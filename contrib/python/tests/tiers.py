"""Decides which tests run always, and which only with `tests/python.sh --all`, which sets INFILL_TEST_ALL."""

import importlib.util
import os
import unittest

#: tests/python/run.py looks for this text.
ONLY_WITH_ALL = "only with --all"

ALL = bool(os.environ.get("INFILL_TEST_ALL"))

#: For a slow test that is not the only one of its kind.
slow = unittest.skipUnless(ALL, ONLY_WITH_ALL)


def need_frameworks(*packages):
    """Skips the file without --all, or where one of the packages is missing."""
    if not ALL:
        raise unittest.SkipTest(ONLY_WITH_ALL)
    for package in packages:
        if not importlib.util.find_spec(package):
            raise unittest.SkipTest(f"{package}: {os.environ.get('INFILL_TEST_MISSING', 'not installed')}")
