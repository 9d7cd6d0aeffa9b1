"""examples/train_plans.py through a chain of plans and sizes, by a small agent."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from agent import TorchAgent

try:
    import tomllib
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch, or tomllib of Python 3.11, is not installed") from None

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "train_plans.py"

#: Ranks add up the same numbers in another order. The example explains how far Adam carries that: 1e-14. Without the
#: optimizer's states, or with samples of another step, losses differ by 0.1, and by 0.005 where replicas drift.
TOLERANCE = 1e-9

#: Divides neither by 4 replicas nor by 2 × 4 micro-batches.
GLOBAL_BATCH = 18

#: Processes, and infill's variables for the plan.
CHAIN = [
    (2, "ddp", {}),
    (2, "zero1", {"ZERO": 1}),
    (2, "fsdp", {"ZERO": 3}),
    (2, "tp2", {"TP": 2}),
    (4, "tp2-gc", {"TP": 2, "GC": 1}),
    (3, "fsdp-gc-ga2", {"ZERO": 3, "GC": 1, "GA": 2}),
    (4, "zero1-ga4", {"ZERO": 1, "GA": 4}),
    (1, "ddp-ga4", {"GA": 4}),
]

#: Fewest steps under each of these plans.
STEPS = 8

#: Shortest time of a step, so that a signal comes between two of them.
STEP_SECS = 0.02


class Plans(unittest.TestCase):
    def setUp(self):
        self.agent = TorchAgent()
        self.addCleanup(self.agent.close)

    def train(self, name, steps, world=1, plan="alone", plan_facts=None, pace="", flags=("--double",)):
        """Starts a training that ends with this step."""
        words = ["--steps", str(steps), "--checkpoint", f"{name}.pt", "--log", f"{name}.jsonl", *flags]
        words = [sys.executable, "-B", str(EXAMPLE), "--global-batch", str(GLOBAL_BATCH), *words]
        variables = {f"INFILL_{key}": str(value) for key, value in (plan_facts or {}).items()}
        self.agent.start(words, world, INFILL_PLAN=plan, TRAIN_PLANS_PACE=pace, SLURMD_NODENAME="n1", **variables)

    def ended(self, code=0):
        """Waits until all ranks have ended in this way. Returns their output."""
        ended = self.agent.ended()
        self.assertEqual({c for c, _, _ in ended}, {code}, ended)
        return [(out, err) for _, out, err in ended]

    def lines(self, name):
        path = self.agent.directory / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def last(self, name):
        return max((line["step"] for line in self.lines(name)), default=0)

    def changed(self):
        """Trains under plan after plan, asking each to leave after some steps. Returns the last step."""
        for world, plan, plan_facts in CHAIN:
            enough = self.last("changed") + STEPS
            self.train("changed", 10_000, world, plan, plan_facts, f"{plan}:n[1-4]:{STEP_SECS * world}")
            self.agent.wait_for(lambda: self.last("changed") >= enough)
            self.agent.ask()
            left_at = {out.splitlines()[-1].partition(": ")[2] for out, _ in self.ended()}
            self.assertEqual(left_at, {f"saved at step {self.last('changed')}"})
        return self.last("changed")

    def states_apart(self):
        """The largest difference of weights and optimizer states between both trainings."""
        ours, theirs = (torch.load(self.agent.directory / f"{n}.pt", weights_only=True) for n in ("changed", "whole"))
        self.assertEqual(ours["step"], theirs["step"])
        pairs = [(ours["model"][name], whole) for name, whole in theirs["model"].items()]
        for name, state in theirs["optimizer"].items():
            pairs += [(ours["optimizer"][name][key], whole) for key, whole in state.items()]
        # Weights, their two moments, and the number of steps of each.
        self.assertEqual(len(pairs), 4 * len(theirs["model"]))
        return max((a - b).abs().max().item() for a, b in pairs)

    def test_plans_and_sizes_change_nothing_of_what_is_learned(self):
        last = self.changed()
        self.train("whole", last)
        self.ended()
        changed, whole = self.lines("changed"), self.lines("whole")
        self.assertEqual([line["step"] for line in changed], list(range(1, last + 1)), "each step once")
        ran = dict.fromkeys((line["world"], line["plan"]) for line in changed)
        self.assertEqual(list(ran), [link[:2] for link in CHAIN])
        apart = max(abs(a["loss"] - b["loss"]) for a, b in zip(changed, whole))
        states = self.states_apart()
        over = f"over {len(CHAIN)} plans and {last} steps"
        print(f"{over} the losses are {apart:.1e} apart, weights and moments {states:.1e}", file=sys.stderr)
        self.assertLess(states, TOLERANCE)
        self.assertLess(apart, TOLERANCE)
        self.assertGreater(apart, 0.0, "all of it was the same program")
        self.assertLess(whole[-1]["loss"], 0.9 * whole[0]["loss"], "it learned nothing")

    def test_a_plan_that_it_cannot_run_ends_with_a_message(self):
        knows = "this program can do zero = 0, 1 or 3, or tp, but neither pp nor offload"
        for world, plan_facts, why in [
            (1, {"ZERO": 3, "OFFLOAD": 1}, knows),
            (2, {"TP": 2, "ZERO": 1}, knows),
            (3, {"TP": 2}, "tp = 2 divides 3 processes or 4 heads unevenly"),
        ]:
            self.train("refused", 1, world, "odd", plan_facts)
            self.assertEqual([err for _, err in self.ended(1)], [f"plan odd: {why}\n"] * world)

    def test_numbers_of_32_bits_do_as_well(self):
        self.train("short", 3, 2, "fsdp", {"ZERO": 3}, flags=())
        self.ended()
        self.train("alone", 3, flags=())
        self.ended()
        for short, alone in zip(self.lines("short"), self.lines("alone"), strict=True):
            self.assertAlmostEqual(short["loss"], alone["loss"], places=5)


class PlansFile(unittest.TestCase):
    def test_the_plans_are_those_that_it_can_run(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "plans.toml")
            words = [sys.executable, "-B", str(EXAMPLE), "--global-batch=24", "--nodes=1-4", f"--write-plans={path}"]
            subprocess.run(words, check=True)
            written = tomllib.loads(path.read_text())
        model = {"layers": 3, "hidden": 32, "heads": 4, "sequence": 16, "global_batch": 24}
        self.assertEqual({key: value for key, value in written["model"].items() if key != "params_mi"}, model)
        kinds = {(plan.get("tp", 1), plan.get("zero", 0)) for plan in written["plan"]}
        self.assertEqual(kinds, {(1, 0), (1, 1), (1, 3), (2, 0), (4, 0)})


if __name__ == "__main__":
    unittest.main()
