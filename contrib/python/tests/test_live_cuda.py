"""Processes on a GPU stay alive while others join, leave and die."""

import random
import signal
import subprocess
import time
import unittest

import test_live_losing
from agent import LONG_SECS
from live_agent import LiveAgent
from live_case import PROGRAM, Live, torch

if not torch.cuda.is_available():
    raise unittest.SkipTest("there is no GPU")


class GpuAgent(LiveAgent):
    """Its processes share the GPUs. NCCL refuses two processes on one GPU, so each pretends to be on a separate host."""

    machine = {"DEVICE": "cuda", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    backend = "nccl"
    launch = subprocess.Popen

    def popen(self, words, variables, **files):
        ours = {"BACKEND": self.backend, "NCCL_HOSTID": str(len(self.processes))}
        return super().popen(words, {**ours, **variables}, **files)


class Gpu(Live):
    def setUp(self):
        self.agent = GpuAgent()
        self.addCleanup(self.agent.close)

    def assert_all_go_on_alike(self):
        super().assert_all_go_on_alike()
        parts = [member.hear("regrouped", epoch=self.agent.epoch)["secs"] for member in self.agent.members]
        print(self.id().split(".")[-1], self.agent.epoch, len(parts), "members:", parts[0], flush=True)


#: A GPT of 124 million parameters, with as many layers and buckets of gradients as a real one: members are lost while
#: NCCL is given work. Each rank records the sum of its parameters.
GPT = """
    import os, time, torch, infill
    from torch import nn
    from infill.torch import ElasticSampler

    torch.manual_seed(0)
    WIDE, HEADS, LAYERS, WORDS, LONG = 768, 12, 12, 50257, 256

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)])
            self.attention = nn.Linear(WIDE, 3 * WIDE)
            self.out = nn.Linear(WIDE, WIDE)
            self.wide = nn.Sequential(nn.Linear(WIDE, 4 * WIDE), nn.GELU(), nn.Linear(4 * WIDE, WIDE))

        def forward(self, x):
            batch, long, _ = x.shape
            q, k, v = self.attention(self.norms[0](x)).view(batch, long, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, long, WIDE))
            return x + self.wide(self.norms[1](x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDE), nn.Embedding(1024, WIDE)
            self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(LAYERS)]), nn.LayerNorm(WIDE)
            self.head = nn.Linear(WIDE, WORDS, bias=False)
            self.head.weight = self.words.weight

        def forward(self, text):
            x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
            return self.head(self.norm(self.blocks(x)))

    def loss(model, text):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(text[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())

    net = Gpt().to("cuda")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    sampler = ElasticSampler(100000, 12, seed=3)
    data = torch.randint(WORDS, (64, LONG + 1), generator=torch.Generator().manual_seed(0)).to("cuda")
    loader = torch.utils.data.DataLoader(range(100000), batch_sampler=sampler)
    warm = lambda model: loss(model, data[:2])
    run = infill.live(net, optimizer, sampler, backend="nccl", checkpoint="live.pt", warm=warm)
    trace = open(f"trace-{os.getpid()}", "w", buffering=1)
    while True:
        for numbers, part in run.parts(loader):
            with run.step(part) as step:
                (loss(run.model, data[numbers % 64]) * part.weight).backward()
                optimizer.step()
                optimizer.zero_grad()
            if step.done:
                trace.write(f"{run.updates} {run.epoch} {sum(p.double().sum().item() for p in net.parameters())!r}\\n")
"""

#: Members that are lost, one after the other.
KILLS = 20


class RealModel(Gpu):
    def test_no_survivor_dies_of_a_loss(self):
        moments, survivors = random.Random(1), self.agent.begin(GPT, 2)
        spare = self.agent.spawn(GPT)
        for number in range(KILLS):
            (newcomer,) = spare
            newcomer.hear("ready")
            spare = self.agent.spawn(GPT) if number + 1 < KILLS else []
            self.agent.regroup([*survivors, newcomer])
            self.assert_all_go_on_alike()
            time.sleep(moments.uniform(0, 0.3))
            # As on a real node, the others do not learn of it at once.
            newcomer.kill()
            time.sleep(moments.uniform(0, 0.3))
            self.agent.regroup(survivors, urgent=True)
            self.assert_all_go_on_alike()
            for member in survivors:
                self.assertIsNone(member.process.poll(), f"a survivor died of loss {number + 1}")
                self.assertIsNone(member.heard("hopeless"))


class Nccl(Gpu):
    # An operation that waits for a peer that is there, but does not come, can only be aborted.
    failures_spread = False

    # As on processors.
    test_one_that_falls_silent = test_live_losing.Losing.test_one_that_falls_silent
    test_an_update_that_not_all_have_made = test_live_losing.Losing.test_an_update_that_not_all_have_made

    def test_some_join_and_some_leave(self):
        first, second = self.agent.begin(PROGRAM, 2)
        (third,) = self.agent.spawn(PROGRAM)
        third.hear("ready")
        self.agent.wait_step(1)
        self.agent.regroup([first, second, third])
        self.assert_all_go_on_alike()
        self.assertGreater(min(number for _, number in self.trace(third)), 1)
        self.agent.regroup([third, second])
        self.assertEqual(first.process.wait(LONG_SECS), 0)
        self.assert_all_go_on_alike()
        self.agent.regroup([second])
        self.assert_all_go_on_alike()
        self.assertFalse((self.agent.directory / "live.pt").exists(), "a checkpoint was written")

    def test_one_after_the_other_is_lost(self):
        first, second, third = self.agent.begin(PROGRAM, 3)
        self.agent.wait_step(3)
        self.lose(third)
        self.assert_all_go_on_alike()
        self.lose(first, host=second)
        self.assert_all_go_on_alike()
        self.assertEqual([first.process.wait(), third.process.wait()], [-signal.SIGKILL] * 2)

    def test_one_that_is_lost_while_it_gets_its_state(self):
        members = self.agent.begin(PROGRAM, 2, WIDE="2000")
        newcomers = self.agent.spawn(PROGRAM, 10, WIDE="2000")
        for number, dying in enumerate(newcomers):
            dying.hear("ready")
            self.agent.regroup([*members, dying])
            time.sleep(0.1 * number)
            self.lose(dying)
            self.assert_all_go_on_alike()

    def test_again_and_again(self):
        members, moments = self.agent.begin(PROGRAM, 2), random.Random(1)
        for number in range(20):
            time.sleep(moments.uniform(0, 0.3))
            self.agent.regroup(members, urgent=True)
            if number % 3 == 0:
                self.agent.regrouped()
                self.agent.wait_step(1)
        self.assert_all_go_on_alike()

    def test_nothing_is_left_behind(self):
        self.assert_changes_leave_nothing(urgent_every=3)


class Gloo(Gpu):
    def setUp(self):
        super().setUp()
        self.agent.backend = "gloo"

    def test_some_join_and_one_is_lost(self):
        members = self.agent.begin(PROGRAM, 2)
        (third,) = self.agent.spawn(PROGRAM)
        third.hear("ready")
        self.agent.regroup([*members, third])
        self.assert_all_go_on_alike()
        self.lose(third)
        self.assert_all_go_on_alike()


if __name__ == "__main__":
    unittest.main()
