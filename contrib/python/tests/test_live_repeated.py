"""A step that is repeated, because a member was lost in it, leaves the same as a step that was never disturbed."""

import random
import sys
import time
import unittest

from agent import SRC
from live_agent import LiveAgent
from live_case import torch

sys.path.insert(0, str(SRC))

import infill  # noqa: E402
from infill._live import others  # noqa: E402
from infill._live.updates import Updates  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402

#: FAILS names the place at which the first try of the fourth update fails on all ranks, as it does on a GPU, where the
#: optimizer is the first to notice a lost member.
PROGRAM = """
    import os, time, torch, infill
    from infill.torch import ElasticSampler

    torch.set_num_threads(1)
    torch.manual_seed(0)
    how, fails = os.environ["HOW"], os.environ.get("FAILS", "")
    net = torch.nn.ModuleList([torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)])
    net.forward = lambda rows: net[0](rows).mean() * net[1](rows).mean()
    optimizers = [torch.optim.Adam(layer.parameters(), lr=0.01) for layer in net]
    if how != "two":
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.01)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=how != "two")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.9)
    data = torch.randn(996, 4, generator=torch.Generator().manual_seed(0))

    def fail(place):
        global fails
        if place == fails and run.updates == 3:
            fails = ""
            raise RuntimeError("planted")

    def nonsense():
        global fails
        if fails == "nonsense" and run.updates == 3:
            fails = ""
            run._changes._group.abort()
            for p in net.parameters():
                p.grad.fill_(float("inf"))

    optimizers[-1].register_step_pre_hook(lambda *_: fail("hook"))
    sampler = ElasticSampler(996, 12)
    named = {} if how == "unnamed" else {"scaler": scaler}
    one_or_two = optimizers if how == "two" else optimizers[0]
    run = infill.live(net, one_or_two, sampler, backend="gloo", scheduler=scheduler, **named)
    trace = open(f"trace-{run.rank}", "w", buffering=1)
    steps, pause = int(os.environ.get("STEPS", 8)), float(os.environ.get("PAUSE", 0))
    while run.updates < steps:
        for number, part in run.parts(torch.utils.data.DataLoader(range(996), batch_sampler=sampler)):
            with run.step(part) as step:
                for optimizer in optimizers:
                    scaler.scale(run.model(data[number]) * part.weight).backward()
                    if how == "clip":
                        scaler.unscale_(optimizer)
                        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                    nonsense()
                    time.sleep(pause)
                    if optimizer is optimizers[-1]:
                        scheduler.step()
                        fail("between")
                    scaler.step(optimizer)
                    for each in optimizers:
                        each.zero_grad()
                scaler.update()
            if step.done:
                values = [v for p in net.parameters() for v in p.flatten().tolist()]
                trace.write(f"{run.updates} {scaler.get_scale()} {scheduler.last_epoch} {values!r}\\n")
            if run.updates == steps:
                break
    run.close()
"""


class Repeated(unittest.TestCase):
    def trained(self, fails, how, moments=(), **more):
        agent = LiveAgent()
        self.addCleanup(agent.close)
        members = agent.begin(PROGRAM, 2, HOW=how, FAILS=fails, **more)
        for pause in moments:
            time.sleep(pause)
            agent.regroup(members, urgent=True)
            agent.regrouped()
        if fails:
            for member in members:
                member.hear("failed")
            agent.regroup(members, urgent=True)
            agent.regrouped()
        agent.end()
        return [(agent.directory / f"trace-{rank}").read_text().splitlines() for rank in range(2)]

    def check(self, how, *fails):
        undisturbed = self.trained("", how)
        self.assertEqual(len(undisturbed[0]), 8)
        self.assertEqual(*undisturbed)
        for place in fails:
            with self.subTest(place):
                self.assertEqual(self.trained(place, how), undisturbed)

    def test_at_random_moments(self):
        moments = random.Random(1)
        for how in ("clip", "two"):
            undisturbed = self.trained("", how, STEPS="80")
            pauses = [moments.uniform(0.02, 0.2) for _ in range(12)]
            traces = self.trained("", how, pauses, STEPS="80", PAUSE="0.02")
            for trace, whole in zip(traces, undisturbed):
                self.assertEqual(trace[-1], whole[-1])
                # A rank has not made an update itself if it was behind when the members met.
                self.assertEqual(set(trace) - set(whole), set())
                self.assertGreater(len(trace), 60)

    def test_gradients_that_a_scaler_divides(self):
        self.check("plain", "hook", "nonsense")

    def test_gradients_that_the_program_divides(self):
        self.check("clip", "hook", "between")

    def test_a_scaler_that_the_program_does_not_name(self):
        self.check("unnamed", "hook")

    def test_two_optimizers_of_which_one_has_stepped(self):
        self.check("two", "between")


class Copies(unittest.TestCase):
    """Which of the other objects are put back."""

    def test_only_small_ones(self):
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        named = {"small": Holder(torch.zeros(100)), "large": Holder(torch.zeros(others.MOST_BYTES)), "odd": Holder(None)}
        named["odd"].state_dict = lambda: 1 / 0
        kept = others.Others(named, [optimizer])
        kept.keep()
        for holder in named.values():
            holder.held = torch.ones(3)
        optimizer.param_groups[0]["lr"] = 7.0
        kept.back()
        self.assertEqual(named["small"].held.tolist(), [0.0] * 100)
        self.assertEqual([named["large"].held.tolist(), named["odd"].held.tolist()], [[1.0] * 3] * 2)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
        # What was put back is no longer the copy.
        named["small"].held.fill_(3.0)
        kept.back()
        self.assertEqual(named["small"].held.tolist(), [0.0] * 100)


class Holder:
    def __init__(self, held):
        self.held = held

    def state_dict(self):
        return {"held": self.held}

    def load_state_dict(self, state):
        self.held = state["held"]


class Several(unittest.TestCase):
    """Several optimizers, in this process, without an agent."""

    def setUp(self):
        self.net = torch.nn.Linear(2, 1)
        self.optimizers = [torch.optim.Adam([p], lr=0.1) for p in self.net.parameters()]

    def gradients(self):
        for p in self.net.parameters():
            p.grad = torch.ones_like(p)

    def test_an_update_needs_all_of_them(self):
        run = infill.live(self.net, self.optimizers, ElasticSampler(8, 4, rank=0, world_size=1))
        self.addCleanup(run.close)
        for _, part in run.parts([None] * 2):
            with run.step(part) as step:
                self.gradients()
                for optimizer in self.optimizers:
                    self.assertFalse(step.done)
                    optimizer.step()
                self.assertTrue(step.done)
                # Those that step twice, as adversarial networks do, belong to the same global batch.
                self.optimizers[0].step()
        self.assertEqual(run.updates, 2)

    def test_one_that_a_scaler_leaves_out(self):
        run = infill.live(self.net, self.optimizers, ElasticSampler(8, 4, rank=0, world_size=1))
        self.addCleanup(run.close)
        for _, part in run.parts([None] * 2):
            with run.step(part) as step:
                self.gradients()
                self.optimizers[1].step()
            self.assertTrue(step.done)
        self.assertEqual(run.updates, 2)

    def test_one_among_the_other_objects_is_refused(self):
        first, second = self.optimizers
        with self.assertRaisesRegex(TypeError, "^second: give all optimizers together"):
            infill.live(self.net, first, ElasticSampler(8, 4), second=second)
        with self.assertRaisesRegex(ValueError, "expected an optimizer"):
            infill.live(self.net, [], ElasticSampler(8, 4))

    def update(self, updates, fails_after=2):
        """The update of programs that compute gradients in between; whether that of a failed one was undone."""
        for number, optimizer in enumerate(self.optimizers):
            self.gradients()
            if number == fails_after:
                return updates.undo()
            updates.begin(optimizer)
            optimizer.step()
            updates.end(optimizer)
        return updates.commit()

    def test_what_one_has_done_is_undone(self):
        updates = Updates(self.optimizers)
        # The first time is not foreseen, and is said.
        self.assertFalse(self.update(updates, fails_after=1))
        self.update(updates)
        before = [p.tolist() for p in self.net.parameters()]
        state = str(self.optimizers[0].state_dict())
        self.assertTrue(self.update(updates, fails_after=1))
        self.assertEqual([p.tolist() for p in self.net.parameters()], before)
        self.assertEqual(str(self.optimizers[0].state_dict()), state)
        self.assertTrue(self.update(updates, fails_after=0))

    def test_steps_without_gradients_in_between_need_no_copies(self):
        updates = Updates(self.optimizers)
        for _ in range(3):
            self.gradients()
            self.assertFalse(updates.begin(self.optimizers[0]))
            self.optimizers[0].step()
            self.assertFalse(updates.end(self.optimizers[0]))
            self.assertTrue(updates.begin(self.optimizers[1]))
            self.optimizers[1].step()
            self.assertTrue(updates.end(self.optimizers[1]))
            self.assertEqual(updates._before, [])
            updates.commit()


if __name__ == "__main__":
    unittest.main()
