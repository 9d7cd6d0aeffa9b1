"""The sampler, and ranks of PyTorch that agree."""

import itertools
import json
import random
import signal
import sys
import time
import unittest
from unittest import mock

from agent import SRC, TorchAgent

sys.path.insert(0, str(SRC))

try:
    import torch
    from torch.utils.data import DataLoader
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill.torch import ElasticSampler, split  # noqa: E402


class Splitting(unittest.TestCase):
    """split, for all small sizes."""

    def check(self, size, world, micro):
        ranks = [split(range(100, 100 + size), world, rank, micro) for rank in range(world)]
        self.assertEqual(len({len(parts) for parts in ranks}), 1, "ranks differ in their number of steps")
        counted = [i for parts in ranks for part in parts if part.weight for i in part.indices]
        self.assertEqual(counted, list(range(100, 100 + size)))
        for parts in ranks:
            self.assertEqual([part.last for part in parts], [False] * (len(parts) - 1) + [True])
            self.assertEqual({part.share for part in parts}, {sum(len(p.indices) for p in parts if p.weight)})
            self.assertTrue(all(1 <= len(part.indices) <= (micro or size) for part in parts))
        # The gradient that DistributedDataParallel makes of a loss that is 1 for one sample and 0 for the others:
        # 1/size.
        for chosen in range(100, 100 + size):
            mean = sum(p.weight * p.indices.count(chosen) / len(p.indices) / world for parts in ranks for p in parts)
            self.assertAlmostEqual(mean, 1 / size, places=12)

    def test_all(self):
        for size, world, micro in itertools.product(range(1, 14), range(1, 7), (None, 1, 2, 3, 5)):
            with self.subTest(size=size, world=world, micro=micro):
                self.check(size, world, micro)


    def shapes(self, pad):
        """The sizes of all micro-steps of a global batch of 256 samples on 1 to 16 ranks, by number of ranks."""
        found = {}
        for world in range(1, 17):
            for rank in range(world):
                parts = split(range(256), world, rank, 32, pad)
                found.setdefault(world, []).append({len(part.indices) for part in parts})
        return found

    def test_a_rank_has_at_most_two_shapes_and_most_parts_are_whole(self):
        for world, ranks in self.shapes(pad=False).items():
            self.assertLessEqual(max(map(len, ranks)), 2, world)
            if world <= 8:
                self.assertTrue(all(32 in shapes for shapes in ranks), (world, ranks))
        # Normalization over a batch refuses a single sample.
        for size, world, micro in itertools.product(range(2, 60), range(1, 7), range(4, 9)):
            for rank in range(world):
                parts = split(range(size), world, rank, micro)
                self.assertLessEqual(len({len(part.indices) for part in parts}), 2, (size, world, micro))
                if parts[0].share != 1:
                    self.assertGreater(min(len(part.indices) for part in parts), 1, (size, world, micro, rank))

    def test_with_padding_there_is_one_shape_and_the_same_gradient(self):
        self.assertEqual(set.union(*(shapes for ranks in self.shapes(pad=True).values() for shapes in ranks)), {32})
        for size, world, micro in itertools.product(range(1, 14), range(1, 7), (1, 2, 3, 5)):
            ranks = [split(range(size), world, rank, micro, pad=True) for rank in range(world)]
            parts = [part for parts in ranks for part in parts]
            self.assertEqual({len(part.indices) for part in parts}, {micro})
            self.assertTrue(all(1 <= part.counted <= micro for part in parts))
            for chosen in range(size):
                mean = sum(p.weight * p.indices[: p.counted].count(chosen) / p.counted / world for p in parts)
                self.assertAlmostEqual(mean, 1 / size, places=12)


class Sampling(unittest.TestCase):
    """ElasticSampler, alone and in a DataLoader."""

    def test_each_seed_and_epoch_has_another_order(self):
        orders = set()
        for seed, epoch in itertools.product(range(3), range(3)):
            sampler = ElasticSampler(20, 20, seed=seed, rank=0, world_size=1)
            sampler.epoch = epoch
            (order,) = sampler
            self.assertEqual(sorted(order), list(range(20)))
            orders.add(tuple(order))
        self.assertEqual(len(orders), 9)

    def test_unshuffled(self):
        sampler = ElasticSampler(7, 4, shuffle=False, rank=1, world_size=2)
        self.assertEqual(list(sampler), [[2, 3], [6]])

    def test_its_length(self):
        sizes = itertools.product((1, 7, 12), (1, 4, 12, 20), (None, 1, 3, "auto"), ("short", "merge", "drop"))
        for size, batch, micro, tail in sizes:
            if tail == "drop" and size < batch:
                continue
            sampler = ElasticSampler(size, batch, micro, tail=tail, rank=1, world_size=3)
            sampler.is_led = True
            for sampler.done in range(0, size, batch):
                self.assertEqual(len(sampler), len(list(sampler)), (size, batch, micro, tail, sampler.done))

    def batches(self, size, batch, **how):
        sampler = ElasticSampler(size, batch, shuffle=False, rank=0, world_size=1, **how)
        ends = [(part.batch, sampler.done) for _, part in sampler.parts(iter(lambda: None, 0)) if part.last]
        self.assertEqual((sampler.epoch, sampler.done), (1, 0))
        return ends

    def test_what_becomes_of_the_last_samples(self):
        self.assertEqual(self.batches(10, 4), [(4, 4), (4, 8), (2, 10)])
        self.assertEqual(self.batches(10, 4, tail="merge"), [(4, 4), (6, 10)])
        self.assertEqual(self.batches(10, 4, tail="merge", micro_batch=4), [(4, 4), (6, 10)])
        self.assertEqual(self.batches(8, 4, tail="merge"), [(4, 4), (4, 8)])
        self.assertEqual(self.batches(3, 4, tail="merge"), [(3, 3)])
        for how in ({"drop_last": True}, {"tail": "drop"}):
            self.assertEqual(self.batches(10, 4, **how), [(4, 4), (4, 8)])

    def test_normalization_takes_each_batch(self):
        norm = torch.nn.BatchNorm1d(3)
        for world in (2, 3, 5):
            for rank in range(world):
                for micro in (None, 4):
                    sampler = ElasticSampler(31, 10, micro, tail="merge", rank=rank, world_size=world)
                    for _, part in sampler.parts(iter(lambda: None, 0)):
                        norm(torch.randn(len(part.indices), 3))

    def test_the_order_is_made_once_an_epoch(self):
        sampler = ElasticSampler(20, 4, rank=0, world_size=1)
        with mock.patch("torch.randperm", side_effect=torch.randperm) as made:
            for _ in range(3):
                list(sampler.parts(sampler))
                sampler.epoch -= 1
                list(sampler)
            self.assertEqual(made.call_count, 1)
            sampler.epoch = 1
            list(sampler)
            self.assertEqual(made.call_count, 2)

    def rescaled(self, random_, workers):
        """The samples of all ranks in three epochs of 50, rescaled after every few global batches."""
        epochs, state = {0: [], 1: [], 2: []}, None
        while state is None or state["epoch"] < 3:
            world, batch, steps = random_.randint(1, 5), random_.randint(1, 12), random_.randint(1, 6)
            micro = random_.choice([None, 1, 2])
            states = []
            for rank in range(world):
                sampler = ElasticSampler(50, batch, micro, seed=4, rank=rank, world_size=world)
                if state:
                    sampler.load_state_dict(state)
                loader = DataLoader(list(range(50)), batch_sampler=sampler, num_workers=workers)
                left = steps
                while left and sampler.epoch < 3:
                    for samples, part in sampler.parts(loader):
                        self.assertEqual(samples.tolist(), part.indices)
                        if part.weight:
                            epochs[sampler.epoch].extend(part.indices)
                        left -= part.last
                        if not left:
                            break
                states.append(sampler.state_dict())
            (state,) = {json.dumps(s) for s in states}
            state = json.loads(state)
        return epochs

    def test_rescales_neither_skip_nor_repeat(self):
        for seed in range(20):
            for epoch, samples in self.rescaled(random.Random(seed), workers=0).items():
                self.assertEqual(sorted(samples), list(range(50)), f"seed {seed}, epoch {epoch}")

    def test_samples_fetched_ahead_do_not_count_as_done(self):
        for epoch, samples in self.rescaled(random.Random(100), workers=1).items():
            self.assertEqual(sorted(samples), list(range(50)), f"epoch {epoch}")

    def test_another_order_is_refused(self):
        state = ElasticSampler(10, 2).state_dict()
        for other in (ElasticSampler(11, 2), ElasticSampler(10, 2, seed=1)):
            with self.assertRaisesRegex(ValueError, "not a place in an order"):
                other.load_state_dict(state)

    def test_invalid_sizes(self):
        for sizes in ((0, 1), (1, 0), (1, 1, -1)):
            with self.assertRaisesRegex(ValueError, "not positive"):
                ElasticSampler(*sizes)

    def test_options_that_make_no_sense(self):
        for options, said in (
            ({"micro_batch": "all"}, "expected a number, None or .auto."),
            ({"tail": "long"}, "expected .short., .merge. or .drop. as tail"),
            ({"tail": "merge", "drop_last": True}, "no drop_last beside"),
            ({"pad": True}, "pad needs a micro_batch"),
            ({"global_batch": 20, "drop_last": True}, "nothing is left: 10 samples, 20 each"),
        ):
            with self.subTest(options), self.assertRaisesRegex(ValueError, said):
                ElasticSampler(**{"size": 10, "global_batch": 2, **options})
        with self.assertRaisesRegex(RuntimeError, "needs infill.torch.Elastic"):
            list(ElasticSampler(10, 2, "auto"))


AGREEING = """
    import random, sys, time, torch, torch.distributed as dist
    import infill

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    wait = random.Random(dist.get_rank())
    number = 0

    @infill.on_rescale
    def save():
        print(number, time.monotonic(), flush=True)

    while True:
        time.sleep(wait.uniform(0, 2 * {step_secs}))
        dist.all_reduce(torch.ones(1))
        number += 1
        infill.step(1, number)
"""


#: Longest time from the signal until saving begins: 0.1 s or a step, and the delay of a busy machine.
AGREED_SECS = 0.2 + 2


class Agreeing(unittest.TestCase):
    """Ranks that are asked at different moments, or only one of them."""

    def setUp(self):
        self.agent = TorchAgent()
        self.addCleanup(self.agent.close)

    def check(self, step_secs, asked):
        self.agent.start(AGREEING.format(step_secs=step_secs), world=3)
        self.agent.wait_for(lambda: any(int(r.get("step", 0)) >= 3 for r in self.agent.reports()))
        asked_at = time.monotonic()
        for rank in asked:
            self.agent.processes[rank].send_signal(signal.SIGUSR1)
        ended = self.agent.ended()
        self.assertEqual([code for code, _, _ in ended], [0, 0, 0], ended)
        left = [out.split() for _, out, _ in ended]
        self.assertEqual(len({step for step, _ in left}), 1, f"they left at different steps: {left}")
        self.assertLess(max(float(at) for _, at in left) - asked_at, AGREED_SECS)
        self.assertEqual(sum("saved" in r for r in self.agent.reports()), 3)

    def test_only_one_rank_is_asked(self):
        self.check(0.02, [2])

    def test_short_steps(self):
        self.check(0.0, [0, 1, 2])

    def test_steps_longer_than_the_time_between_agreements(self):
        self.check(0.2, [1, 0])


LOADING = """
    import time, torch, infill
    from torch.utils.data import DataLoader

    @infill.on_rescale
    def save():
        time.sleep(1.5)
        print("saved")

    loader = DataLoader(torch.arange(1000), batch_size=4, num_workers=2, multiprocessing_context="fork", {options})
    while True:
        for step, batch in enumerate(loader):
            time.sleep(0.02)
            infill.step(len(batch), step)
"""


class Loading(unittest.TestCase):
    """Workers of a loader, which also get all signals."""

    def check(self, number, options=""):
        agent = TorchAgent()
        self.addCleanup(agent.close)
        agent.start(LOADING.format(options=options))
        agent.wait_for(lambda: any(int(r["step"]) >= 3 for r in agent.reports()))
        asked_at = time.monotonic()
        agent.ask(number)
        self.assertEqual(agent.ended(), [(0, "saved\n", "")])
        self.assertLess(time.monotonic() - asked_at, 1.5 + 4)

    def test_a_rescale(self):
        self.check(signal.SIGUSR1)

    def test_a_preemption(self):
        self.check(signal.SIGTERM, "worker_init_fn=infill.torch.spare_worker")

    def test_workers_that_stay(self):
        self.check(signal.SIGTERM, "worker_init_fn=infill.torch.spare_worker, persistent_workers=True")


class Gradients(unittest.TestCase):
    """The gradient of real ranks is that of one process with the whole global batch."""

    def test_uneven_shares_and_micro_steps(self):
        agent = TorchAgent()
        self.addCleanup(agent.close)
        program = """
            import torch, torch.distributed as dist
            from infill.torch import split

            torch.set_default_dtype(torch.float64)
            torch.manual_seed(0)
            x, y = torch.randn(10, 3), torch.randn(10, 1)
            net = torch.nn.Linear(3, 1)
            dist.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(net)
            for size in (10, 7, 2):
                for micro in (None, 2, 1):
                    net.zero_grad()
                    torch.nn.functional.mse_loss(net(x[:size]), y[:size]).backward()
                    whole = [p.grad.clone() for p in net.parameters()]
                    net.zero_grad()
                    for part in split(range(size), dist.get_world_size(), dist.get_rank(), micro):
                        with part.sync(model):
                            mean = torch.nn.functional.mse_loss(model(x[part.indices]), y[part.indices])
                            (mean * part.weight).backward()
                    for got, want in zip(net.parameters(), whole):
                        # Sums of ten numbers near 1, in another order: a few units in the last place.
                        torch.testing.assert_close(got.grad, want, rtol=1e-13, atol=1e-13)
            dist.barrier()
        """
        agent.start(program, world=3)
        for code, _, err in agent.ended():
            self.assertEqual(code, 0, err)


if __name__ == "__main__":
    unittest.main()
