"""Runs the tests of one file, and records how long each took and why tests were skipped.

Usage: one_file.py FACTS FILE [PATTERN…]; FACTS gets a line of JSON for each fact.
"""

import json
import pathlib
import sys
import unittest

FACTS, FILE, PATTERNS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]

#: unittest puts this before the name of a file that skips as a whole.
WHOLE_FILE = "unittest.loader.ModuleSkipped."


def note(kind, test, value):
    fact = {"kind": kind, "test": test.id().removeprefix(WHOLE_FILE), "value": value}
    with open(FACTS, "a") as facts:
        print(json.dumps(fact), file=facts)


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        note("skipped", test, reason)

    def addDuration(self, test, elapsed):
        super().addDuration(test, elapsed)
        note("secs", test, elapsed)


class Runner(unittest.TextTestRunner):
    resultclass = Result


names = [word for pattern in PATTERNS for word in ("-k", pattern)]
discover = ["discover", "-v", "-s", str(FILE.parent), "-p", FILE.name, *names]
unittest.main(module=None, argv=["unittest", *discover], testRunner=Runner)
