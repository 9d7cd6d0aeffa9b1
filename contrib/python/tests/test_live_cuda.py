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
