"""Changes that a newer one overtakes."""

import random
import signal
import socket
import time
import unittest

from live_agent import LiveAgent
from live_case import PROGRAM, Live
from tiers import slow


class Outdated(Live):
    @classmethod
    def setUpClass(cls):
        """Two members that go through all changes."""
        cls.agent = LiveAgent()
        cls.addClassCleanup(cls.agent.close)
        cls.first, cls.second = cls.agent.begin(PROGRAM, 2)

    def setUp(self):
        """The agent is the same in all tests."""

    def both(self):
        """The two members, which train together."""
        pair = [self.first, self.second]
        self.agent.regroup(pair, urgent=True)
        self.assert_all_go_on_alike()
        return pair

    def test_a_newcomer_that_never_comes(self):
        (absent,) = self.agent.spawn(PROGRAM)
        absent.hear("ready")
        absent.kill(signal.SIGSTOP)
        # Also without urgency: a member that waits for others sees that it is wanted elsewhere.
        for urgent in (True, False):
            members = self.both()
            self.agent.regroup([*members, absent])
            time.sleep(0.5)
            self.agent.regroup(members, urgent=urgent)
            self.assert_all_go_on_alike()

    def test_a_newcomer_that_dies_on_the_way(self):
        first, second = self.both()
        (dying,) = self.agent.spawn(PROGRAM)
        dying.hear("ready")
        dying.kill(signal.SIGSTOP)
        self.agent.regroup([dying, first, second], host=second)
        time.sleep(0.3)
        self.lose(dying, host=second)
        self.assert_all_go_on_alike()

    def test_one_in_the_middle_that_does_not_come(self):
        # A member after it in the order waits for the members before it.
        first, second = self.both()
        (absent,) = self.agent.spawn(PROGRAM)
        absent.hear("ready")
        absent.kill(signal.SIGSTOP)
        self.agent.regroup([first, absent, second], host=first)
        time.sleep(0.5)
        begin = time.monotonic()
        self.lose(absent, host=first)
        self.assert_all_go_on_alike()
        self.assertLess(time.monotonic() - begin, 15.0)

    @slow
    def test_a_port_without_a_store(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            self.goes_on_after_a_store_at(port)
        self.goes_on_after_a_store_at(port)

    def goes_on_after_a_store_at(self, port):
        members = self.both()
        self.agent.regroup(members, store=f"127.0.0.1:{port}")
        time.sleep(0.5)
        self.agent.regroup(members, urgent=True)
        self.assert_all_go_on_alike()

    def test_again_and_again(self):
        # gloo reports no error to a member that sends just when its peer ends the group.
        moments = random.Random(1)
        for number in range(60):
            time.sleep(moments.uniform(0, 0.06))
            self.agent.regroup([self.first, self.second], urgent=True)
            self.agent.regrouped()
            if number % 3 == 0:
                self.agent.wait_step(1)
        self.both()

    def test_an_old_epoch_is_ignored(self):
        first, _ = self.both()
        first.send("regroup", epoch=1, rank=0, world=1, store="127.0.0.1:1", urgent=True)
        first.send("leave", epoch=self.agent.epoch, urgent=True)
        failures = first.heard("failed")
        self.agent.wait_step(5)
        self.assertEqual(first.heard("failed"), failures)
        self.assert_all_go_on_alike()


if __name__ == "__main__":
    unittest.main()
