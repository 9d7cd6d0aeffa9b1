"""Trials of Optuna in jobs that are rescaled, pruned and started again."""

import json
import pathlib
import sys
import unittest

from agent import SRC, Agent
from tiers import need_frameworks

need_frameworks("optuna")

sys.path.insert(0, str(SRC))

from infill.optuna import FAILURES, load_study  # noqa: E402

PROGRAM = """
    import json, os, pathlib, sys, time
    import infill, infill.optuna, optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    STEPS, PACE = int(os.environ.get("STEPS", 40)), float(os.environ.get("PACE", 0.02))
    study = infill.optuna.load_study("s", "study.journal", pruner=optuna.pruners.ThresholdPruner(upper=0.5))

    def objective(trial):
        lr = trial.suggest_float("lr", 0.0, 1.0)
        saved = pathlib.Path(f"saved-{trial.number}")
        start = int(saved.read_text()) if saved.exists() else 0
        done = start
        infill.on_rescale(lambda: saved.write_text(str(done)))
        print(json.dumps([trial.number, lr, start]), flush=True)
        for done in range(start + 1, STEPS + 1):
            time.sleep(PACE)
            if done == int(os.environ.get("FAIL_AT", 0)):
                raise RuntimeError("no luck")
            bad = done >= int(os.environ.get("BAD_FROM", 10**9))
            infill.optuna.report(trial, 1.0 if bad else 0.1, done, samples=4, total=STEPS)
        return lr

    infill.optuna.optimize(study, objective, int(os.environ.get("TRIALS", 1)), json.loads(os.environ.get("TOTAL", "null")))
"""


class Trials(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)

    def study(self):
        return load_study("s", str(self.agent.directory / "study.journal"))

    def states(self):
        return [trial.state.name for trial in self.study().trials]

    def started(self, ended):
        """Number, parameter and first step of each trial that the first rank began."""
        code, out, err = ended[0]
        self.assertEqual(code, 0, err)
        return [json.loads(line) for line in out.splitlines()]

    def test_a_rescaled_job_goes_on_with_its_trial(self):
        self.agent.start(PROGRAM, PACE="0.1")
        self.agent.reports_until(5)
        self.agent.ask()
        [[number, lr, start]] = self.started(self.agent.ended())
        self.assertEqual((number, start, self.states()), (0, 0, ["RUNNING"]))
        self.agent.start(PROGRAM)
        [[again, same, later]] = self.started(self.agent.ended())
        self.assertEqual((again, same, self.states()), (0, lr, ["COMPLETE"]))
        self.assertGreaterEqual(later, 5)

    def test_a_job_that_starts_again_after_its_trial_begins_no_other(self):
        for _ in range(2):
            self.agent.start(PROGRAM, STEPS="3")
            self.started(self.agent.ended())
        self.assertEqual(self.states(), ["COMPLETE"])

    def test_a_pruned_trial_ends_at_once_with_code_0(self):
        self.agent.start(PROGRAM, BAD_FROM="3", STEPS="100000")
        self.started(self.agent.ended())
        [trial] = self.study().trials
        self.assertEqual((trial.state.name, max(trial.intermediate_values)), ("PRUNED", 3))

    def test_all_ranks_have_the_parameters_and_the_end_of_the_first(self):
        self.agent.start(PROGRAM, world=3, BAD_FROM="5", STEPS="100000", TRIALS="2", PACE="0.1")
        ended = self.agent.ended()
        begun = self.started(ended)
        self.assertEqual(len(begun), 2)
        for code, out, err in ended[1:]:
            self.assertEqual(code, 0, err)
            self.assertEqual([json.loads(line) for line in out.splitlines()], begun)
        self.assertEqual(self.states(), ["PRUNED"] * 2)

    def test_a_failed_trial_is_tried_again_three_times(self):
        for failures in range(1, 5):
            self.agent.start(PROGRAM, FAIL_AT="2")
            [(code, _, err)] = self.agent.ended()
            self.assertEqual(code, 1, err)
            self.assertIn("no luck", err)
            [trial] = self.study().trials
            self.assertEqual(trial.user_attrs[FAILURES], failures)
        self.assertEqual(self.states(), ["FAIL"])

    def test_drivers_share_a_study(self):
        processes = []
        for job in range(4):
            self.agent.start(PROGRAM, TOTAL="20", STEPS="2", INFILL_JOB_ID=str(job))
            processes += self.agent.processes
        self.agent.processes = processes
        begun = [trial for ended in self.agent.ended() for trial in self.started([ended])]
        numbers = sorted(number for number, _, _ in begun)
        self.assertEqual(numbers, list(range(len(numbers))), "a trial ran twice or never")
        self.assertTrue(20 <= len(numbers) <= 23, numbers)
        self.assertEqual(set(self.states()), {"COMPLETE"})

    def test_progress_tells_when_the_trial_ends(self):
        self.agent.start(PROGRAM, STEPS="3")
        self.agent.ended()
        reports = self.agent.reports()
        self.assertEqual([(r["step"], r["total"], r["samples"]) for r in reports], [(str(n), "3.0", "4.0") for n in (1, 2, 3)])

    def test_a_trial_counts_more_with_each_rung(self):
        halving = "SuccessiveHalvingPruner(min_resource=2, reduction_factor=2)"
        self.agent.start(PROGRAM.replace("ThresholdPruner(upper=0.5)", halving), STEPS="9")
        self.agent.ended()
        weights = [float(report["weight"]) for report in self.agent.reports()]
        self.assertEqual(weights, [1.0] + 2 * [1.5] + 4 * [1.5**2] + 2 * [1.5**3])


LAUNCH = """
    import infill.optuna

    study = infill.optuna.load_study("s", "study.journal")

    def suggest(trial):
        trial.suggest_int("layers", 3, 3)
        trial.suggest_categorical("act", ["relu"])

    infill.optuna.launch(study, suggest, "python3", "train.py", profile_by=["layers"], nodes="1-2")
"""


class Launch(unittest.TestCase):
    def test_the_command_has_the_parameters_of_the_jobs_trial(self):
        agent = Agent()
        self.addCleanup(agent.close)
        infill = agent.directory / "infill"
        infill.write_text('#!/bin/sh\necho "$@"\n')
        infill.chmod(0o755)
        for _ in range(2):
            agent.start(LAUNCH, PATH=f"{agent.directory}:/usr/bin:/bin")
            [(code, out, err)] = agent.ended()
            self.assertEqual(code, 0, err)
            self.assertEqual(out, "run --nodes=1-2 --profile-by=layers -- python3 train.py --layers=3 --act=relu\n")
        [trial] = load_study("s", str(pathlib.Path(agent.directory) / "study.journal")).trials
        self.assertEqual(trial.state.name, "RUNNING")


if __name__ == "__main__":
    unittest.main()
