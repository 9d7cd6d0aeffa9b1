"""Random numbers of ranks that train together: each rank has its own, and they follow from the seed."""

import random
import sys
import unittest

from agent import SRC
from live_agent import LiveAgent
from live_case import torch

sys.path.insert(0, str(SRC))

from infill._live import generators  # noqa: E402

try:
    import numpy
except ImportError:
    raise unittest.SkipTest("NumPy is not installed") from None

PROGRAM = """
    import os, random, time, numpy, torch, infill
    from infill.torch import ElasticSampler

    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(5)
    net = torch.nn.Linear(4, 1)
    sampler = ElasticSampler(996, 12)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    run = infill.live(net, optimizer, sampler, backend="gloo", checkpoint="live.pt")
    epoch = None
    for batch, part in run.parts(torch.utils.data.DataLoader(torch.randn(996, 4), batch_sampler=sampler)):
        if run.epoch != epoch:
            epoch, numbers = run.epoch, [random.random(), numpy.random.random(), torch.rand(()).item()]
            with open(f"numbers-{os.getpid()}", "a") as file:
                file.write(f"{numbers}\\n")
        with run.step(part) as step:
            (run.model(batch).mean() * part.weight).backward()
            optimizer.step()
            time.sleep(0.02)
"""


def numbers():
    return random.random(), numpy.random.random(), torch.rand(()).item()


class Generators(unittest.TestCase):
    def assert_all_differ(self, agent):
        agent.regrouped()
        files = [agent.directory / f"numbers-{member.process.pid}" for member in agent.members]
        agent.wait_step(2)
        rows = [eval(file.read_text().splitlines()[-1]) for file in files]
        for kind, values in zip(("Python", "NumPy", "PyTorch"), zip(*rows)):
            self.assertEqual(len(set(values)), len(rows), f"{kind}: {values}")

    def test_each_rank_has_its_own(self):
        agent = LiveAgent()
        self.addCleanup(agent.close)
        members = agent.begin(PROGRAM, 2)
        self.assert_all_differ(agent)
        (third,) = agent.spawn(PROGRAM)
        third.hear("ready")
        agent.regroup([*members, third])
        self.assert_all_differ(agent)
        third.send("save")
        third.hear("saved")
        for member in agent.members:
            member.kill()
        agent.begin(PROGRAM, 2)
        self.assert_all_differ(agent)

    def test_they_follow_from_seed_update_and_rank(self):
        seen = []
        for place in ((1, 2, 3), (1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0), (12, 3, 0), (1, 23, 0)):
            generators.seed(*place)
            seen.append(numbers())
        self.assertEqual(seen[0], seen[1])
        for kind in zip(*seen):
            self.assertEqual(len(set(kind)), len(seen) - 1)


if __name__ == "__main__":
    unittest.main()
