"""examples/train_ddp.py, rescaled at random moments by a small agent."""

import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

from agent import TorchAgent
from tiers import ALL

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "train_ddp.py"

POINTS = 4096

#: Divides neither by the numbers of ranks nor the epoch, and each rank's share takes more than one micro-step.
GLOBAL_BATCH, MICRO_BATCH = 150, 30
EPOCHS = 14
STEPS = EPOCHS * -(-POINTS // GLOBAL_BATCH)
STEP_SECS = 0.02

RESCALES = 10 if ALL else 4
SEED = int(os.environ.get("INFILL_TEST_SEED", 1))

#: Ranks add up the same numbers in another order. With 64 bits that is an error of 1e-16 in a gradient. Adam divides
#: it by the gradients' own size, and in some 400 steps of a learning network it grows to 1e-12, as measured. A single
#: wrong sample moves weights by 0.4; ranks' own means instead of the global mean move them by 1.4.
TOLERANCE = 1e-8


def weights(path):
    saved = torch.load(path, weights_only=True)
    return torch.cat([tensor.flatten() for tensor in saved["model"].values()])


class Rescaling(unittest.TestCase):
    def setUp(self):
        self.agent = TorchAgent()
        self.addCleanup(self.agent.close)
        self.random = random.Random(SEED)

    def start(self, name, world, step_secs):
        flags = {
            "--steps": STEPS, "--global-batch": GLOBAL_BATCH, "--micro-batch": MICRO_BATCH, "--step-secs": step_secs,
            "--checkpoint": f"{name}.pt", "--log": f"{name}.jsonl", "--trace": f"{name}.trace",
        }  # fmt: skip
        words = [str(word) for pair in flags.items() for word in pair]
        self.agent.start([sys.executable, "-B", str(EXAMPLE), "--double", *words], world)

    def trace(self, name):
        path = self.agent.directory / f"{name}.trace"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def all_listen(self):
        """Whether a second step of this generation is done. Before the end of the first, a signal just kills."""
        return len({t["step"] for t in self.trace("rescaled") if t["generation"] == self.agent.generation}) > 1

    def ask_at_random(self):
        """Sends the signal to the ranks in random order, not at once."""
        processes = self.random.sample(self.agent.processes, len(self.agent.processes))
        for process in processes:
            process.send_signal(self.random.choice([signal.SIGUSR1, signal.SIGTERM]))
            time.sleep(self.random.uniform(0, 0.05))

    def test_it_learns_what_an_undisturbed_training_learns(self):
        self.start("whole", 1, 0.0)
        self.assertEqual([code for code, _, _ in self.agent.ended()], [0])

        for _ in range(RESCALES):
            world = self.random.randint(1, 4)
            self.start("rescaled", world, STEP_SECS)
            self.agent.wait_for(self.all_listen)
            time.sleep(self.random.uniform(0, 0.5))
            self.ask_at_random()
            ended = self.agent.ended()
            self.assertEqual([code for code, _, _ in ended], [0] * world, ended)
            left_at = {out.splitlines()[-1].partition(": ")[2] for _, out, _ in ended}
            self.assertEqual(len(left_at), 1, f"ranks left at different steps: {left_at}")
            self.assertRegex(left_at.pop(), "saved at step")
        # A signal may come while the interpreter starts. No rank waits for another one then, and nothing is lost.
        self.agent.launch = subprocess.Popen
        self.start("rescaled", 4, STEP_SECS)
        time.sleep(self.random.uniform(0, 0.5))
        self.ask_at_random()
        self.assertEqual({code for code, _, _ in self.agent.ended(20)} - {-signal.SIGUSR1, -signal.SIGTERM}, set())
        self.start("rescaled", 3, 0.0)
        ended = self.agent.ended()
        self.assertEqual([code for code, _, _ in ended], [0, 0, 0], ended)

        trace = self.trace("rescaled")
        self.assert_each_sample_once(trace)
        self.assertGreater(len({t["world"] for t in trace}), 2, "the sizes were too alike to show anything")
        learned, expected = (weights(self.agent.directory / f"{name}.pt") for name in ("rescaled", "whole"))
        apart = (learned - expected).abs().max().item()
        print(f"after {RESCALES} rescales the weights are {apart:.1e} apart", file=sys.stderr)
        self.assertLess(apart, TOLERANCE)

    def assert_each_sample_once(self, trace):
        seen = collections.defaultdict(list)
        for line in trace:
            seen[line["epoch"]].extend(line["mine"])
        self.assertEqual(sorted(seen), list(range(EPOCHS)))
        for epoch, samples in seen.items():
            self.assertEqual(sorted(samples), list(range(POINTS)), f"epoch {epoch}")
        ranks = collections.Counter(line["step"] for line in trace)
        worlds = {line["step"]: line["world"] for line in trace}
        self.assertEqual(ranks, worlds, "steps that not all ranks did, or did twice")


if __name__ == "__main__":
    unittest.main()
