"""Members that are there and answer, but do not come, and what is done before a group on GPUs ends."""

import sys
import threading
import time
import unittest
from datetime import timedelta
from unittest import mock

from agent import LONG_SECS, SRC
from live_agent import LiveAgent
from live_case import torch

sys.path.insert(0, str(SRC))

from infill._live import among, group  # noqa: E402
from infill._live.keys import Keys  # noqa: E402
from infill._live.watch import Watch  # noqa: E402

#: Time limit of a step here, seconds.
STEP_SECS = 3.0

PROGRAM = f"""
    import os, time, torch, infill
    from infill.torch import ElasticSampler

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    sampler = ElasticSampler(996, 12)
    run = infill.live(net, optimizer, sampler, backend="gloo", timeout_secs={STEP_SECS})

    def wait(place):
        if run.updates == 5 and run.rank == 1 and run.epoch == 1 and os.environ["STUCK"] == place:
            time.sleep(1000)

    for batch, part in run.parts(torch.utils.data.DataLoader(torch.randn(996, 4), batch_sampler=sampler)):
        wait("between")
        with run.step(part) as step:
            wait("inside")
            (run.model(batch).mean() * part.weight).backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.01)
"""


class Stuck(unittest.TestCase):
    def begin(self, place):
        self.agent = LiveAgent()
        self.addCleanup(self.agent.close)
        return self.agent.begin(PROGRAM, 3, STUCK=place)

    def assert_the_others_go_on(self, stuck):
        # It is alive, and says so.
        stuck.said.clear()
        stuck.send("roll")
        self.assertEqual(stuck.hear("here")["step"], 5)
        stuck.kill()
        self.agent.regroup([member for member in self.agent.members if member is not stuck], urgent=True)
        for said in self.agent.regrouped():
            self.assertEqual(said["step"], 5)
        self.agent.wait_step(3)

    def test_in_the_middle_of_a_step(self):
        first, stuck, third = self.begin("inside")
        for member in (first, stuck, third):
            member.hear("failed")
        # The others do not know which one it is.
        self.assertIn("nothing but a kill", stuck.hear("hopeless")["why"])
        self.assertEqual([first.heard("hopeless"), third.heard("hopeless")], [None, None])
        self.assert_the_others_go_on(stuck)

    def test_between_two_steps(self):
        members = first, stuck, third = self.begin("between")
        for member in (first, third):
            member.hear("failed")
        self.agent.regroup(list(members), urgent=True)
        self.assertIn("nothing but a kill", stuck.hear("hopeless")["why"])
        self.assert_the_others_go_on(stuck)

    def test_a_step_may_take_as_long_as_others_did(self):
        watch, now = Watch(), [0.0]
        with mock.patch("time.monotonic", lambda: now[0]):
            watch.begin()
            now[0] = 4.0
            self.assertTrue(watch.is_stuck(3.0))
            watch.end()
            self.assertFalse(watch.is_stuck(3.0))
            watch.begin()
            now[0] = 40.0
            self.assertFalse(watch.is_stuck(3.0))
            now[0] = 45.0
            self.assertTrue(watch.is_stuck(3.0))


class Aborting(unittest.TestCase):
    """Groups of NCCL, without a GPU: when they are aborted, and that memory is there for them."""

    def setUp(self):
        ours = group.Transport("nccl", torch.device("cuda", 0), timedelta(seconds=1))
        self.group = group.Group(1, 0, 2, ours, Keys(None, 1))
        self.aborted = threading.Event()
        for name, value in (("_has_nccl", lambda _: True),):
            patch = mock.patch.object(group.Group, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        patch = mock.patch.object(group.torch_private, "abort_all_nccl", self.aborted.set)
        patch.start()
        self.addCleanup(patch.stop)

    def abort_on_another_thread(self):
        thread = threading.Thread(target=self.group.abort)
        thread.start()
        thread.join(LONG_SECS)

    def test_not_while_work_is_given_to_the_device(self):
        began = time.monotonic()
        self.abort_on_another_thread()
        self.assertIsNotNone(self.group.aborted_at)
        self.assertFalse(self.aborted.is_set())
        while not self.aborted.wait(0.05):
            self.abort_on_another_thread()
        self.assertGreaterEqual(time.monotonic() - began, group.LAUNCH_SECS)

    def test_at_once_while_it_waits_for_the_device(self):
        with among._rest():
            self.abort_on_another_thread()
        self.assertTrue(self.aborted.wait(LONG_SECS))

    def test_at_once_by_itself(self):
        self.group.abort()
        self.assertTrue(self.aborted.wait(LONG_SECS))

    def test_room_for_a_communicator(self):
        for free, times in ((group.COMMUNICATOR_BYTES, 0), (group.COMMUNICATOR_BYTES - 1, 1)):
            with mock.patch("torch.cuda.mem_get_info", lambda _, free=free: (free, 1 << 40)):
                with mock.patch("torch.cuda.empty_cache") as emptied:
                    self.group._make_room()
            self.assertEqual(emptied.call_count, times)


if __name__ == "__main__":
    unittest.main()
