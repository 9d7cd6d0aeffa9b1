"""Execution plans that are declared in Python."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from agent import SRC

sys.path.insert(0, str(SRC))

import infill  # noqa: E402

try:
    import tomllib
except ImportError:
    tomllib = None

WAYS = {
    "ddp": {},
    "zero-3": {"zero": 3, "offload": True, "nodes": "2-8", "types": ("a100", "h100")},
    "tp2": {"tp": 2, "args": ["--note", 'a "word" \\ ü\n'], "env": {"A.B": "1\x7f"}},
}

#: What all of them are to infill.
LISTED = [{"name": name, **way} for name, way in WAYS.items()]


class TheFile(unittest.TestCase):
    """plans, as text for `infill run --plans FILE`."""

    def test_a_plan_in_words(self):
        text = infill.plans(ddp={}, zero3={"zero": 3, "checkpointing": True, "env": {"A": "b"}})
        first, second = '[[plan]]\nname = "ddp"\n', '[[plan]]\nname = "zero3"\nzero = 3\ncheckpointing = true\n'
        self.assertEqual(text, f'{first}\n{second}[plan.env]\n"A" = "b"\n')

    @unittest.skipIf(tomllib is None, "Python 3.11 reads TOML")
    def test_what_is_written_is_read(self):
        self.assertEqual(tomllib.loads(infill.plans(WAYS)), json.loads(json.dumps({"plan": LISTED})))

    def test_what_no_plan_can_hold(self):
        expected = "plan 'ddp' has tpp, zeroes; expected nodes, types, tp, .*, env"
        with self.assertRaisesRegex(TypeError, expected):
            infill.plans(ddp={"tpp": 2, "zeroes": 1})


class Running(unittest.TestCase):
    """run, with a program in the place of `infill`."""

    def words(self, call):
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory, "infill")
            program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
            program.chmod(0o755)
            code = f"import infill\nWAYS = {WAYS!r}\n{call}\nprint('came back')"
            environment = {**os.environ, "PATH": directory, "PYTHONPATH": str(SRC)}
            done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
        return json.loads(done.stdout)

    def test_it_becomes_infill_run(self):
        flags = "nodes='1-8', at_least=40.5, alone=True, no_prefix=False"
        program, plans, *others = self.words(f"infill.run('python', 'train.py', '--lr=1', plans=WAYS, {flags})")
        self.assertEqual(program, "run")
        self.assertEqual(json.loads(plans.removeprefix("--plans=")), json.loads(json.dumps({"plan": LISTED})))
        self.assertEqual(others, ["--nodes=1-8", "--at-least=40.5", "--alone", "--", "python", "train.py", "--lr=1"])

    def test_plans_are_not_needed(self):
        self.assertEqual(self.words("infill.run('train')"), ["run", "--", "train"])


if __name__ == "__main__":
    unittest.main()
