"""Micro-steps as large as the memory allows, and losses that are sums over tokens."""

import sys
import unittest

from agent import LONG_SECS, SRC
from live_agent import LiveAgent
from live_case import torch

sys.path.insert(0, str(SRC))

import infill  # noqa: E402
from infill._micro_batch import MicroBatch  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402

#: The device of a process has room for FITS samples at a time.
FITTING = """
    import os, time, torch, infill
    from infill.torch import ElasticSampler

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    fits = int(os.environ["FITS"])
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    net.register_buffer("broadcast", torch.zeros(()))
    data = torch.randn(996, 4, generator=torch.Generator().manual_seed(0))
    sampler = ElasticSampler(996, 12, "auto", seed=3)
    run = infill.live(net, torch.optim.SGD(net.parameters(), lr=0.1), sampler, backend="gloo")
    trace = open(f"trace-{os.getpid()}", "w", buffering=1)
    begun = None
    sizes = open(f"sizes-{os.getpid()}", "w", buffering=1)
    while run.updates < int(os.environ.get("STEPS", 10**6)):
        for batch, part in run.parts(torch.utils.data.DataLoader(data, batch_sampler=sampler)):
            with run.step(part) as step:
                sizes.write(f"{run.epoch} {len(batch)} {part.weight > 0}\\n")
                if begun != run.updates:
                    # Sent once for each global batch, with its first pass.
                    begun = run.updates
                    net.broadcast.fill_(begun if run.rank == 0 else -1.0)
                result = run.model(batch)
                assert net.broadcast == run.updates, net.broadcast
                if len(batch) > fits and (part.last or not os.environ.get("LAST")):
                    raise torch.OutOfMemoryError("planted")
                (result.square().mean() * part.weight).backward()
                if part.last:
                    run._state.optimizers[0].step()
                    run._state.zero_grad()
                    time.sleep(0.01)
            if step.done:
                trace.write(f"{run.updates} {run.epoch} {[v for p in net.parameters() for v in p.flatten().tolist()]}\\n")
            if run.updates >= int(os.environ.get("STEPS", 10**6)):
                break
    run.close()
"""


class Fitting(unittest.TestCase):
    def setUp(self):
        self.agent = LiveAgent()
        self.addCleanup(self.agent.close)

    def rows(self, kind, member):
        path = self.agent.directory / f"{kind}-{member.process.pid}"
        return [line.split(" ", 2) for line in path.read_text().splitlines()]

    def sizes(self, member, epoch):
        """Sizes of the micro-steps, and whether they counted."""
        return [(int(size), counts == "True") for of, size, counts in self.rows("sizes", member) if int(of) == epoch]

    def begin(self, **fits):
        members = [member for limit in fits.values() for member in self.agent.spawn(FITTING, FITS=str(limit), STEPS="8")]
        for member in members:
            member.hear("ready")
        self.agent.regroup(members)
        return members

    def test_a_rank_with_less_memory_takes_smaller_steps(self):
        large, small = self.begin(first=100, second=2)
        self.agent.end()
        # The first two updates try it with samples that count elsewhere.
        self.assertEqual(self.sizes(large, 1)[:5], [(6, False), (6, True), (6, False), (6, True), (6, True)])
        self.assertEqual(self.sizes(small, 1)[:2], [(6, False), (3, True)])
        self.assertEqual(self.sizes(small, 1)[2:], [(1, True)] * (len(self.sizes(small, 1)) - 2))
        self.assertIn("6 samples at a time do not fit the device's memory; trying 3", self.errors(1))
        self.assertEqual([member.heard("failed") for member in (large, small)], [None, None])
        self.assertEqual(self.rows("trace", large), self.rows("trace", small))
        disturbed = self.rows("trace", large)

        self.setUp()
        alone = self.begin(first=100)
        self.agent.end()
        for (number, _, got), (same, _, want) in zip(disturbed, self.rows("trace", alone[0])):
            self.assertEqual(number, same)
            torch.testing.assert_close(torch.tensor(eval(got)), torch.tensor(eval(want)), rtol=1e-6, atol=1e-6)

    def errors(self, number):
        return (self.agent.directory / f"errors-{number}").read_text()

    def test_what_did_not_fit_is_remembered_at_other_sizes(self):
        members = self.agent.spawn(FITTING, FITS="4") + self.agent.spawn(FITTING, FITS="100")
        for member in members:
            member.hear("ready")
        self.agent.regroup(members)
        self.agent.regrouped()
        self.agent.wait_step(4)
        self.agent.regroup(members[:1])
        self.assertEqual(members[1].process.wait(LONG_SECS), 0)
        self.agent.regrouped()
        self.agent.wait_step(3)
        self.assertEqual({size for size, _ in self.sizes(members[0], 2)}, {3})
        self.assertEqual(members[0].heard("failed"), None)

    def test_a_last_part_that_does_not_fit(self):
        # The ranks exchange gradients with it, so they begin the batch again together.
        members = self.agent.spawn(FITTING, FITS="4", LAST="1", STEPS="8") + self.agent.spawn(FITTING, FITS="9", STEPS="8")
        for member in members:
            member.hear("ready")
        self.agent.regroup(members)
        self.assertIn("planted", members[0].hear("failed")["error"])
        self.agent.regroup(members, urgent=True)
        self.agent.end()
        self.assertEqual({size for size, _ in self.sizes(members[0], 2)}, {3})
        self.assertEqual(*(self.rows("trace", member) for member in members))

    def test_nothing_is_smaller_than_one_sample(self):
        (member,) = self.begin(first=0)
        # Then it is an error of the program.
        self.assertIn("planted", member.hear("failed")["error"])

    def test_sizes(self):
        fitting = MicroBatch()
        self.assertEqual(fitting.size(12), 12)
        fitting.begin(12)
        fitting.updated()
        self.assertFalse(fitting.is_proved(12))
        fitting.updated()
        self.assertTrue(fitting.is_proved(12))
        self.assertTrue(fitting.too_large(24))
        self.assertTrue(fitting.is_proved(12))
        self.assertTrue(fitting.too_large(12))
        self.assertEqual((fitting.size(12), fitting.size(3)), (6, 3))
        self.assertFalse(fitting.is_proved(7))

    def test_ranks_that_need_equally_many_steps_are_refused(self):
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SyncBatchNorm(2))
        with self.assertRaisesRegex(ValueError, "not for SyncBatchNorm"):
            infill.live(net, torch.optim.SGD(net.parameters()), ElasticSampler(8, 4, "auto"))


class InBackward(unittest.TestCase):
    """Optimizers that step while gradients are still computed."""

    def test_they_are_refused(self):
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        hook = net.bias.register_post_accumulate_grad_hook(lambda p: optimizer.step())
        with self.assertRaisesRegex(ValueError, "parameter bias is updated"):
            infill.live(net, optimizer, ElasticSampler(8, 4, rank=0, world_size=1))
        hook.remove()
        run = infill.live(net, optimizer, ElasticSampler(8, 4, rank=0, world_size=1))
        self.addCleanup(run.close)
        net.weight.register_post_accumulate_grad_hook(lambda p: None)
        with self.assertRaisesRegex(ValueError, "parameter weight is updated"):
            for _, part in run.parts([None]):
                with run.step(part):
                    pass


#: Sample i has i % 4 tokens that count. The gradient of each update is compared with the one of the whole batch.
TOKENS = """
    import os, torch, infill
    from infill.torch import ElasticSampler

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 1)
    data = torch.randn(60, 4, 5, generator=torch.Generator().manual_seed(0))
    counts = torch.arange(60) % 4
    kind, pad = os.environ["KIND"], bool(os.environ.get("PAD"))
    sampler = ElasticSampler(60, 14, 3, seed=3, pad=pad)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = infill.live(net, optimizer, sampler, backend="gloo")

    def sums(model, numbers):
        counted = torch.arange(4) < counts[numbers][:, None]
        return (model(data[numbers]).square()[..., 0] * counted).sum(), counted.sum()

    while run.updates < 10:
        whole = sampler._order()
        for numbers, part in run.parts(torch.utils.data.DataLoader(range(60), batch_sampler=sampler)):
            with run.step(part) as step:
                loss, items = sums(run.model, numbers[: part.counted])
                step.backward(loss, items=items if kind == "tensor" else int(items))
                if part.last:
                    end = sampler.done
                    loss, items = sums(net, whole[end - part.batch : end])
                    for p, want in zip(net.parameters(), torch.autograd.grad(loss / items, list(net.parameters()))):
                        torch.testing.assert_close(p.grad, want, rtol=1e-12, atol=1e-12)
                    optimizer.step()
                    optimizer.zero_grad()
            if run.updates == 10:
                break
    run.close()
"""


class Tokens(unittest.TestCase):
    def check(self, count, **how):
        agent = LiveAgent()
        self.addCleanup(agent.close)
        agent.begin(TOKENS, count, **how)
        agent.end()

    def test_the_gradient_is_that_of_the_mean_over_all_tokens(self):
        self.check(3, KIND="tensor")
        self.check(1, KIND="number")

    def test_with_padding(self):
        self.check(2, KIND="number", PAD="1")


if __name__ == "__main__":
    unittest.main()
