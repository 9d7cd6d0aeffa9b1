"""The load and the jobs' step logs."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import load  # noqa: E402
import malleable  # noqa: E402


class TheLoad(unittest.TestCase):
    """load.tsv."""

    def setUp(self):
        self.jobs = load.parse((HERE.parent / "load.tsv").read_text())

    def test_it_is_what_the_demo_promises(self):
        self.assertGreaterEqual(len(self.jobs), 15)
        self.assertEqual(len({job.name for job in self.jobs}), len(self.jobs))
        self.assertTrue({1, 8} <= {job.nodes for job in self.jobs})
        self.assertLess(self.jobs[-1].submit_secs, 240)

    def test_no_job_runs_into_its_limit(self):
        for job in self.jobs:
            self.assertLessEqual(job.run_secs, job.limit_mins * 60, job.name)

    def test_an_unordered_load_is_refused(self):
        with self.assertRaises(ValueError):
            load.parse("a 10 1 1 1\nb 9 1 1 1\n")


class Steps(unittest.TestCase):
    """Logs of steps."""

    def check(self, steps, expected):
        log = "".join(f'{{"step": {step}, "world": 2}}\n' for step in steps)
        self.assertEqual(malleable.repeated_and_missing(log), expected)

    def test_each_step_once(self):
        self.check([1, 2, 3], (0, 0))

    def test_steps_done_again_are_lost_work(self):
        self.check([1, 2, 3, 2, 3, 4], (2, 0))

    def test_steps_that_nobody_did(self):
        self.check([1, 2, 5], (0, 2))

    def test_a_line_that_was_cut_off(self):
        self.assertEqual(malleable.repeated_and_missing('{"step": 1}\n{"st{"step": 2}\n'), (0, 0))

    def test_no_log(self):
        self.assertIsNone(malleable.steps("x", pathlib.Path("/nonexistent")))


if __name__ == "__main__":
    unittest.main()
