"""examples/train_live.py, whose processes join, leave and die at random moments.

INFILL_TEST_CHANGES is the number of changes (20), and INFILL_TEST_SEED determines the moments.
"""

import collections
import json
import os
import pathlib
import random
import signal
import sys
import time
import unittest

from live_agent import LiveAgent
from tiers import ALL

try:
    import torch  # noqa: F401
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "train_live.py"

POINTS = 4096

#: Divides neither by the numbers of ranks nor the epoch, and each rank's share takes more than one micro-step.
GLOBAL_BATCH, MICRO_BATCH = 150, 30
STEP_SECS = 0.02

CHANGES = int(os.environ.get("INFILL_TEST_CHANGES", 20 if ALL else 8))
SEED = int(os.environ.get("INFILL_TEST_SEED", 1))

#: Ranks add up the same numbers in another order: 1e-16 in a gradient, which grows over some hundred steps.
TOLERANCE = 1e-9


#: Memory that is used for the first time is not a leak.
MORE_MEMORY = 1.05

#: After this time the temporary remains of a change are gone.
SETTLED_SECS = 5.0


def resources(pid):
    """Descriptors and threads of a process, and its resident memory, KiB."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return (len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])), int(status["VmRSS"].split()[0])


class Rescaling(unittest.TestCase):
    def setUp(self):
        self.agent = LiveAgent()
        self.addCleanup(self.agent.close)
        self.random = random.Random(SEED)
        self.newcomers, self.history = [], []
        self.least, self.memory = {}, collections.defaultdict(list)

    def words(self, name, steps, step_secs):
        flags = {
            "--steps": steps, "--global-batch": GLOBAL_BATCH, "--micro-batch": MICRO_BATCH, "--step-secs": step_secs,
            "--checkpoint": f"{name}.pt", "--log": f"{name}.jsonl", "--trace": f"{name}.trace", "--lr": 0.003,
        }  # fmt: skip
        words = [str(word) for pair in flags.items() for word in pair]
        return [sys.executable, "-B", str(EXAMPLE), "--double", *words]

    def trace(self, name):
        path = self.agent.directory / f"{name}.trace"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def grow(self):
        new = [self.newcomers.pop(0) for _ in range(self.random.randint(1, 4 - len(self.agent.members)))]
        for member in new:
            member.hear("ready")
        self.agent.regroup([*self.agent.members, *new])
        self.warm()

    def warm(self):
        """Newcomers that may be needed warm up while the others change and train."""
        self.newcomers += self.agent.spawn(self.program, 3 - len(self.newcomers))

    def shrink(self):
        self.agent.regroup(self.random.sample(self.agent.members, self.random.randint(1, len(self.agent.members) - 1)))

    def lose(self, number):
        """Makes a member die or stop at any moment of a step. The agents notify the others after a while."""
        lost = self.random.choice(self.agent.members)
        time.sleep(self.random.uniform(0, 2 * STEP_SECS))
        lost.kill(number)
        time.sleep(self.random.choice([0, 0.05, 0.3]))
        self.agent.regroup([m for m in self.agent.members if m is not lost], urgent=True)
        lost.kill()

    def change(self):
        members = len(self.agent.members)
        kinds = [*["grow"] * (members < 4), *["shrink", "kill", "stop"] * (members > 1)]
        kind = self.random.choice(kinds)
        if kind == "grow":
            self.grow()
        elif kind == "shrink":
            self.shrink()
        else:
            self.lose(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        self.agent.regrouped()
        self.history.append((kind, len(self.agent.members)))

    def measure(self):
        """A member's resources depend on the membership, not on the number of earlier ones."""
        # The connections through which newcomers got the state stay open until the next change.
        self.agent.regroup(self.agent.members)
        self.agent.regrouped()
        self.agent.wait_step(2)
        world, end = len(self.agent.members), time.monotonic() + SETTLED_SECS
        for rank, member in enumerate(self.agent.members):
            used, memory = resources(member.process.pid)
            least = min(used, self.least.setdefault((world, rank), used))
            while used > least and time.monotonic() < end:
                time.sleep(STEP_SECS)
                used, memory = resources(member.process.pid)
                least = min(used, least)
            self.least[world, rank] = least
            self.assertEqual(used, least, f"descriptors and threads of rank {rank} of {world} after {self.history}")
            self.memory[member.process.pid].append(memory)

    def assert_memory_stays(self):
        more = max(sizes[-1] / sizes[0] for sizes in self.memory.values())
        changes = max(map(len, self.memory.values()))
        print(f"at most {(more - 1) * 100:.1f} % more memory, in up to {changes} changes a process", file=sys.stderr)
        self.assertLess(more, MORE_MEMORY)

    def test_it_learns_what_an_undisturbed_training_learns(self):
        self.program = self.words("live", 10**6, STEP_SECS)
        self.agent.begin(self.program, 2)
        self.warm()
        for number in range(CHANGES):
            self.agent.wait_step(self.random.randint(1, 8))
            self.change()
            if number % 4 == 3:
                self.measure()
        self.agent.wait_step(3)
        for member in [*self.agent.members, *self.newcomers]:
            member.kill()

        self.assert_memory_stays()
        trace = self.trace("live")
        steps = self.assert_each_sample_once(trace)
        self.agent.start(self.words("whole", steps, 0.0))
        self.assertEqual([code for code, _, _ in self.agent.ended()], [0])
        whole = {line["step"]: line["loss"] for line in self.trace("whole") if "loss" in line}
        live = [(line["step"], line["loss"]) for line in trace if "loss" in line and line["step"] <= steps]
        apart = max(abs(loss - whole[step]) for step, loss in live)
        print(f"after {self.history} losses of {steps} steps are {apart:.1e} apart", file=sys.stderr)
        self.assertLess(apart, TOLERANCE)
        self.assertFalse((self.agent.directory / "live.pt").exists(), "a checkpoint was written")

    def assert_each_sample_once(self, trace):
        """Checks each step by the last membership that made it. Returns the number of steps."""
        made = {}
        for line in trace:
            if "loss" in line:
                made[line["step"]] = max(line["membership"], made.get(line["step"], 0))
        steps = max(made)
        self.assertEqual(sorted(made), list(range(1, steps + 1)))
        seen = collections.defaultdict(list)
        for line in trace:
            if "mine" in line and made.get(line["step"]) == line["membership"]:
                seen[line["epoch"]].extend(line["mine"])
        *epochs, last = sorted(seen)
        for epoch in epochs:
            self.assertEqual(sorted(seen[epoch]), list(range(POINTS)), f"epoch {epoch}")
        self.assertEqual(len(set(seen[last])), len(seen[last]), "a sample came twice")
        return steps


if __name__ == "__main__":
    unittest.main()
