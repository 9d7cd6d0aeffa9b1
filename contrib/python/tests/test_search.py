"""The example of a search over networks: its trials go on at another size, and end where they stood."""

import pathlib
import re
import shutil
import sys
import unittest

from agent import SRC, Agent
from tiers import need_frameworks

need_frameworks("torch", "optuna")

sys.path.insert(0, str(SRC))

from infill.optuna import load_study  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"

FLAGS = ["--layers=2", "--hidden=16", "--lr=0.01", "--rounds=60", "--steps-a-round=4"]


class Search(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)

    def trials(self):
        return load_study("spirals", str(self.agent.directory / "spirals.journal")).trials

    def test_a_trial_goes_on_at_another_size(self):
        words = [sys.executable, "-B", str(EXAMPLES / "search.py"), *FLAGS]
        self.agent.start(words, world=1)
        self.agent.reports_until(5)
        self.agent.ask()
        self.assertEqual([code for code, _, _ in self.agent.ended()], [0])
        [trial] = self.trials()
        self.assertEqual(trial.state.name, "RUNNING")
        self.agent.start(words, world=2)
        ended = self.agent.ended()
        self.assertEqual([code for code, _, _ in ended], [0, 0], ended)
        for _, out, _ in ended:
            begun = re.search(r"trial 0: 2 layers of 16, 2 ranks, from (\d+)", out)
            self.assertIsNotNone(begun, out)
            self.assertGreaterEqual(int(begun[1]), 5)
        [trial] = self.trials()
        self.assertEqual((trial.state.name, sorted(trial.intermediate_values)), ("COMPLETE", list(range(1, 61))))
        self.assertLess(trial.value, trial.intermediate_values[1])

    def test_the_batch_script_gives_the_command_its_parameters(self):
        infill = self.agent.directory / "infill"
        infill.write_text('#!/bin/sh\necho "$@"\n')
        infill.chmod(0o755)
        # Slurm runs a copy of the script.
        script = self.agent.directory / "slurm_script"
        shutil.copy(EXAMPLES / "search.sbatch", script)
        path = f"{self.agent.directory}:/usr/bin:/bin"
        self.agent.start([sys.executable, "-B", str(script)], SLURM_SUBMIT_DIR=str(EXAMPLES), PATH=path)
        [(code, out, err)] = self.agent.ended()
        self.assertEqual(code, 0, err)
        pattern = r"run --grace=30 --profile-by=layers,hidden -- python3 search\.py --layers=\d --hidden=\d+ --lr=[\d.e-]+\n"
        self.assertRegex(out, pattern)


if __name__ == "__main__":
    unittest.main()
