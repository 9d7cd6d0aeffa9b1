"""`infill.torch.Elastic`: a model that is a module, and micro-steps without rules."""

import copy
import json
import pickle
import signal
import sys
import unittest

from agent import LONG_SECS, SRC
from live_case import Live, torch

sys.path.insert(0, str(SRC))

import infill  # noqa: E402
from infill._live.model import Hook, Model  # noqa: E402
from infill.torch import Elastic, ElasticSampler, Micro, Step  # noqa: E402

#: What a user writes, and a trace for the test: parameters after each update.
PROGRAM = """
    import collections, gc, json, os, sys, time, torch, torch._dynamo, infill
    from infill.torch import Elastic, ElasticSampler

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(os.getpid())

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.one = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

        def forward(self, rows):
            return self.one(self.wide(rows).tanh())

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    sampler = ElasticSampler(996, 12, micro_batch=3, seed=3)
    data = torch.randn(996, 4, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)

    calls = []
    def hook(state, bucket):
        calls.append(state)
        mean = bucket.buffer().div_(torch.distributed.get_world_size())
        return torch.distributed.all_reduce(mean, async_op=True).get_future().then(lambda done: done.value()[0])

    options = {"ddp_hook": (lambda: len(calls), hook)} if "HOOK" in os.environ else {}
    total = int(os.environ.get("STEPS", 10**6))
    options.update(total=total, clip_norm=10.0, checkpoint="live.pt")
    job = Elastic(net, optimizer, sampler, scheduler=scheduler, **options)
    model = job.model
    if "COMPILE" in os.environ:
        model = torch.compile(model, backend="eager")
    facts, made = {}, collections.Counter()
    trace = open(f"trace-{os.getpid()}", "w", buffering=1)
    for rows in job.batches(loader):
        with job.micro(rows) as micro:
            micro.backward(model(rows).square().mean())
            time.sleep(0.003)
        if micro.done:
            whole = sum(p.sum().item() for p in net.parameters()) + scheduler.last_epoch
            trace.write(f"{job.updates} {job.epoch} {whole!r}\\n")
            made[job.epoch] += 1
            if made[job.epoch] == 2:
                alive = sum(type(each) is torch.nn.parallel.DistributedDataParallel for each in gc.get_objects())
                facts[job.epoch] = [len(set(calls)), torch._dynamo.utils.counters["stats"]["unique_graphs"], alive]
                open(f"facts-{os.getpid()}", "w").write(json.dumps(facts))
    job.close()
    print(f"{job.updates} of {job.total}: {job.finished}", sampler.epoch, sampler.done)
"""


class Changing(Live):
    def change(self, **environment):
        """Members join, leave and are lost; all have the same parameters after each update."""
        first, second = self.agent.begin(PROGRAM, 2, **environment)
        (third,) = self.agent.spawn(PROGRAM, **environment)
        third.hear("ready")
        self.agent.wait_step(3)
        self.agent.regroup([first, second, third])
        self.assert_all_go_on_alike()
        self.lose(second)
        self.assert_all_go_on_alike()
        self.agent.regroup([third])
        self.assertEqual(first.process.wait(LONG_SECS), 0)
        self.assert_all_go_on_alike()
        facts = json.loads((self.agent.directory / f"facts-{third.process.pid}").read_text())
        return [facts[epoch] for epoch in "234"]

    def test_members_join_leave_and_are_lost(self):
        self.assertEqual(self.change(), [[0, 0, 1]] * 3)

    def test_a_hook_is_kept(self):
        # Its state is made again for each membership.
        self.assertEqual([states for states, _, _ in self.change(HOOK="1")], [1, 2, 3])

    def test_a_compiled_model(self):
        """It is compiled, once for the sizes of its batches, and keeps no wrapper of an earlier membership."""
        facts = self.change(COMPILE="1")
        graphs = [number for _, number, _ in facts]
        self.assertGreater(graphs[0], 0)
        self.assertLessEqual(graphs[-1], graphs[0] + 1, facts)
        self.assertEqual([wrappers for _, _, wrappers in facts], [1] * 3)

    def test_it_ends_after_all_updates_and_says_when(self):
        (member,) = self.agent.begin(PROGRAM, 1, STEPS="100")
        self.agent.end()
        # 83 updates are an epoch, and 17 are 204 samples of the next one.
        self.assertIn("100 of 100: True 1 204", (self.agent.directory / "errors-0").read_text())
        reports = self.agent.reports()
        self.assertEqual({(r["total"], float(r["samples"])) for r in reports if "step" in r}, {("100.0", 12.0)})
        self.assertTrue(all(float(r["loss"]) > 0 for r in reports if "step" in r))


class WhatIsMissing(Live):
    """A PyTorch without one of the symbols that a live change needs."""

    LACKS = "import torch.nn.parallel\n    del torch.nn.parallel.DistributedDataParallel._register_buffer_comm_hook\n"

    def test_the_job_restarts_instead(self):
        words = self.LACKS.join(["\n    ", PROGRAM])
        self.agent.start(words, world=2, INFILL_CONTROL=str(self.agent.directory / "control"))
        self.agent.wait_step(5)
        self.agent.ask(signal.SIGUSR1)
        symbol = "torch.nn.parallel.DistributedDataParallel._register_buffer_comm_hook"
        says = f"infill: each change of size is a restart: PyTorch {torch.__version__} has no {symbol}\n"
        self.assertEqual([(code, err) for code, _, err in self.agent.ended()], [(0, says)] * 2)
        self.assertEqual(self.agent.everybody, [])
        saved = torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"]
        self.agent.start(words, world=1, STEPS=str(saved + 3))
        self.assertIn(f"{saved + 3} of {saved + 3}: True", self.agent.ended()[0][1])


class Alone(unittest.TestCase):
    """In this process, without an agent."""

    def setUp(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.sampler = ElasticSampler(8, 4, 2, rank=0, world_size=1)

    def make(self, *, optimizer=None, **options):
        job = Elastic(self.net, optimizer or self.optimizer, self.sampler, **options)
        self.addCleanup(job.close)
        return job

    def test_it_learns_what_the_raw_form_learns(self):
        other = copy.deepcopy(self.net)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        whole = torch.utils.data.DataLoader(torch.arange(8.0), batch_sampler=ElasticSampler(8, 4))
        rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        means = []
        for batch in whole:
            loss = other(batch[:, None].expand(-1, 2)).square().mean()
            means.append(loss.item())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
            optimizer.step()
            rates.step()
            optimizer.zero_grad()

        scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        job = self.make(scheduler=scheduler, clip_norm=1.0)
        loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_sampler=self.sampler)
        seen = []
        for batch in job.batches(loader, epochs=1):
            with job.micro(batch) as micro:
                self.assertEqual(micro.part.indices, [int(each) for each in micro.batch])
                micro.backward(job.model(batch[:, None].expand(-1, 2)).square().mean())
            if micro.done:
                seen.append(float(micro._step.loss))
        self.assertEqual((job.updates, self.sampler.epoch, job.finished), (2, 1, False))
        for mine, theirs in zip(self.net.parameters(), other.parameters()):
            torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(seen, means, rtol=1e-5, atol=1e-5)
        self.assertEqual(scheduler.last_epoch, 2)

    def test_two_optimizers_and_a_sum_over_items(self):
        other = copy.deepcopy(self.net)
        theirs = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in other]
        whole = torch.utils.data.DataLoader(torch.arange(8.0), batch_sampler=ElasticSampler(8, 4))
        for batch in whole:
            # A sample has as many items as its number.
            outputs = other(batch[:, None].expand(-1, 2))[:, 0].square()
            ((outputs * batch).sum() / batch.sum()).backward()
            for optimizer in theirs:
                optimizer.step()
                optimizer.zero_grad()
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in self.net]
        job = self.make(optimizer=optimizers)
        loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_sampler=self.sampler)
        for batch in job.batches(loader, epochs=1):
            with job.micro(batch) as micro:
                outputs = job.model(batch[:, None].expand(-1, 2))[:, 0].square()
                micro.backward((outputs * batch).sum(), items=batch.sum())
        self.assertEqual(job.updates, 2)
        for mine, their in zip(self.net.parameters(), other.parameters()):
            torch.testing.assert_close(mine, their)

    def test_mistakes_are_refused(self):
        job = self.make(total=2)
        loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_sampler=self.sampler)
        batches = job.batches(loader)
        first = next(batches)
        with self.assertRaisesRegex(ValueError, "takes the batch that batches.. has given last"):
            job.micro(first + 0)
        with self.assertRaisesRegex(RuntimeError, "must be trained"):
            next(batches)
        with job.micro(first) as micro:
            with self.assertRaisesRegex(RuntimeError, "the update belongs into the last"):
                micro.update()
        with self.assertRaisesRegex(ValueError, "given last"):
            job.micro(first)
        job.total = None
        with self.assertRaisesRegex(ValueError, "would have no end"):
            next(job.batches(loader))
        with self.assertRaisesRegex(ValueError, "not positive: total 0"):
            self.make(total=0)

    def test_the_update_can_come_earlier(self):
        job = self.make(total=1)
        for batch in job.batches([1.0, 2.0]):
            with job.micro(batch) as micro:
                micro.backward(self.net(torch.ones(1, 2)).sum() * batch)
                if micro.last:
                    micro.update()
                    self.assertEqual(job.updates, 1)
                    self.assertTrue(micro.done)
        self.assertIsInstance(micro, Micro)
        self.assertTrue(job.finished)

    def test_a_gradient_scaler_is_used(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        job = self.make(scaler=scaler, clip_norm=1e9, total=1)
        before = [p.detach().clone() for p in self.net.parameters()]
        scaled = []
        self.net[0].weight.register_hook(lambda gradient: scaled.append(gradient.clone()))
        for batch in job.batches([1.0, 1.0]):
            with job.micro(batch) as micro:
                micro.backward(self.net(torch.ones(1, 2)).sum())
        plain = copy.deepcopy(self.net)
        for parameter, old in zip(plain.parameters(), before):
            parameter.data.copy_(old)
        plain(torch.ones(1, 2)).sum().backward()
        torch.testing.assert_close(sum(scaled), 4.0 * plain[0].weight.grad)
        torch.testing.assert_close(self.net[0].weight.data, before[0] - 0.1 * plain[0].weight.grad)

    def test_older_names(self):
        job = infill.live(self.net, self.optimizer, self.sampler)
        self.addCleanup(job.close)
        self.assertIsInstance(job, Elastic)
        for _, part in job.parts([None] * 4):
            with job.step(part) as step:
                self.assertIsInstance(step, Step)
        self.assertEqual(job.updates, 2)


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
        self.config = {"hidden": 3}

    def generate(self):
        return self(torch.zeros(1, 2)), self.training


class TheModel(unittest.TestCase):
    def setUp(self):
        self.net = Net()
        self.model = Model(self.net, {})

    def test_it_is_the_network_by_all_names(self):
        model, net = self.model, self.net
        self.assertIsInstance(model, torch.nn.Module)
        self.assertEqual(list(model.state_dict()), list(net.state_dict()))
        self.assertEqual([n for n, _ in model.named_parameters()], [n for n, _ in net.named_parameters()])
        self.assertTrue(all(a is b for a, b in zip(model.parameters(), net.parameters())))
        self.assertEqual([n for n, _ in model.named_modules()], [n for n, _ in net.named_modules()])
        self.assertIs(getattr(model, "0"), net[0])
        self.assertEqual(model.config, {"hidden": 3})
        model.config = {"hidden": 4}
        self.assertEqual(net.config, {"hidden": 4})
        self.assertIn("generate", dir(model))
        with self.assertRaisesRegex(AttributeError, "'Net' object has no attribute 'nothing'"):
            _ = model.nothing

    def test_its_mode_is_the_networks(self):
        self.assertIs(self.model.eval(), self.model)
        self.assertFalse(self.net[1].training or self.model.training)
        self.assertEqual(self.model.generate()[1], False)
        self.net.train()
        self.assertTrue(self.model.training)

    def test_what_changes_parameters_changes_the_networks(self):
        other = Net()
        self.model.load_state_dict(other.state_dict())
        torch.testing.assert_close(self.net[0].weight, other[0].weight)
        self.model.double()
        self.assertEqual({p.dtype for p in self.net.parameters()}, {torch.float64})
        self.model(torch.ones(3, 2).double()).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3)
        self.assertGreater(norm, 0)
        self.model.zero_grad()
        self.assertIsNone(self.net[0].weight.grad)
        self.model.bias = torch.nn.Parameter(torch.ones(1))
        self.assertIn("bias", dict(self.net.named_parameters()))
        del self.model.bias
        self.assertNotIn("bias", dict(self.model.named_parameters()))

    def test_hooks_of_it_are_called_once(self):
        called = []
        handle = self.model.register_forward_hook(lambda *_: called.append(1))
        self.model(torch.ones(3, 2))
        handle.remove()
        self.model(torch.ones(3, 2))
        self.assertEqual(called, [1])

    def test_a_copy_is_the_network_alone(self):
        for twin in (copy.deepcopy(self.model), pickle.loads(pickle.dumps(self.model))):
            self.assertIs(type(twin), Net)
            torch.testing.assert_close(twin[0].weight, self.net[0].weight)
        average = torch.optim.swa_utils.AveragedModel(self.model)
        average.update_parameters(self.model)
        torch.testing.assert_close(average.module[0].weight, self.net[0].weight)

    def test_a_wrapper_is_none_of_its_parts(self):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        names, keys = [n for n, _ in self.model.named_modules()], list(self.model.state_dict())
        self.model.wrap()
        self.assertIsInstance(self.model._wrapped, torch.nn.parallel.DistributedDataParallel)
        self.assertEqual([n for n, _ in self.model.named_modules()], names)
        self.assertEqual(list(self.model.state_dict()), keys)
        self.model(torch.ones(3, 2)).sum().backward()
        self.assertIsNotNone(self.net[0].weight.grad)
        self.model.unwrap()

    def test_hooks_that_would_not_last_are_refused(self):
        self.assertIsNone(Hook.of(None))
        for wrong in (print, (1, 2, 3), (None, "hook")):
            with self.assertRaisesRegex(TypeError, "must be a pair of a state and a hook"):
                Hook.of(wrong)
        counts = type("PowerSGDState", (), {"maybe_increase_iter": print})()
        with self.assertRaisesRegex(TypeError, "PowerSGDState counts steps.*give a function"):
            Hook.of((counts, print))


if __name__ == "__main__":
    unittest.main()
