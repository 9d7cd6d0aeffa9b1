"""Members that are gone without notice."""

import signal
import time
import unittest

from agent import LONG_SECS
from live_case import PROGRAM, Live, torch
from tiers import slow

#: A newcomer whose memory has grown by this much is getting its state.
MESSAGE_KIB = 40 << 10

#: Width at which a network has 32 MB of gradients and 96 MB of state: neither fits one message.
WIDE = "2000"


class Losing(Live):
    def test_one_after_the_other_also_the_host_of_the_store(self):
        first, second, third, fourth = self.agent.begin(PROGRAM, 4)
        self.lose(third)
        self.assert_all_go_on_alike()
        self.lose(first, host=fourth)
        self.assert_all_go_on_alike()
        self.assertEqual([first.process.wait(), third.process.wait()], [-signal.SIGKILL] * 2)
        self.lose(second)
        self.assert_all_go_on_alike()
        fresh = self.agent.spawn(PROGRAM)
        fresh[0].hear("ready")
        self.agent.regroup([*fresh, fourth])
        self.assert_all_go_on_alike()

    def test_one_that_falls_silent(self):
        first, second, third = self.agent.begin(PROGRAM, 3)
        self.agent.wait_step(10)
        second.kill(signal.SIGSTOP)
        for member in (first, third):
            self.assertGreaterEqual(member.hear("stuck", epoch=1)["secs"], 5)
            member.send("roll")
            self.assertEqual(member.hear("here")["epoch"], 1)
        self.lose(second, signal.SIGSTOP)
        self.assert_all_go_on_alike()
        # When it is back, it finds that it was given up.
        second.kill(signal.SIGCONT)
        self.assertEqual(second.process.wait(LONG_SECS), 0)
        second.hear("left", epoch=2)

    def test_one_that_is_back_replaces_no_newer_checkpoint(self):
        first, second = self.agent.begin(PROGRAM, 2)
        self.agent.wait_step(3)
        first.kill(signal.SIGSTOP)
        # Nothing reaches it, so it does not learn that it was given up.
        self.agent.members = [second]
        self.agent.regroup([second], urgent=True)
        self.agent.regrouped()
        self.agent.wait_step(5)
        second.send("save")
        saved = second.hear("saved")["step"]
        first.kill(signal.SIGCONT)
        first.send("save")
        # Its peer is gone. It notices in the middle of a step, and fails, or at the end of one, and would save.
        self.agent.wait_for(lambda: first.heard("hopeless") or first.heard("failed"))
        if hopeless := first.heard("hopeless"):
            self.assertLess(hopeless["step"], saved)
            errors = self.agent.directory / "errors-0"
            stays = "live.pt stays as it is"
            self.agent.wait_for(lambda: stays in errors.read_text() or first.heard("closed"))
            self.assertIn(stays, errors.read_text())
        on_disk = torch.load(self.agent.directory / "live.pt", weights_only=True)
        self.assertEqual((on_disk["updates"], on_disk["epoch"]), (saved, 2))

    def test_one_that_the_others_wait_to_send_to(self):
        members = self.agent.begin(PROGRAM, 3)
        self.agent.wait_step(2)
        # By then the first waits to send it the counts of its normalization.
        members[2].kill(signal.SIGSTOP)
        time.sleep(0.5)
        self.lose(members[2])
        self.assert_all_go_on_alike()

    def stop_in_the_middle(self, count):
        """`count` members and two newcomers. The second newcomer has a part of the state and takes no more."""
        members = self.agent.begin(PROGRAM, count, WIDE=WIDE)
        newcomers = _, stopped = self.agent.spawn(PROGRAM, 2, WIDE=WIDE)
        for member in newcomers:
            member.hear("ready")
        before = self.size(stopped.process.pid)[2]
        self.agent.regroup([*members, *newcomers])
        self.agent.wait_for(lambda: self.size(stopped.process.pid)[2] > before + MESSAGE_KIB)
        stopped.kill(signal.SIGSTOP)
        return members, newcomers

    @slow
    def test_one_that_is_lost_in_the_middle_of_a_message(self):
        # It has received a part of the first one's data, and never receives the rest.
        (first, second), (other, stopped) = self.stop_in_the_middle(2)
        self.lose(stopped, signal.SIGSTOP)
        self.assert_all_go_on_alike()
        # As above, in the middle of a message of gradients.
        self.lose(second, signal.SIGSTOP)
        self.assert_all_go_on_alike()
        # A call that was given up does not keep a process from ending.
        self.agent.regroup([other])
        self.assertEqual(first.process.wait(LONG_SECS), 0)

    def lose_the_giver(self, others):
        """The first gives two newcomers its state, and is lost when they have a part; the `others`, and they, are left."""
        members, newcomers = self.stop_in_the_middle(1 + others)
        members[0].kill()
        members[0].process.wait()
        newcomers[1].kill(signal.SIGCONT)
        self.assertEqual([m.heard("regrouped", epoch=self.agent.epoch) for m in newcomers], [None, None])
        self.lose(members[0])
        return newcomers

    def test_one_that_gives_its_state_while_another_has_it(self):
        newcomers = self.lose_the_giver(others=1)
        self.assert_all_go_on_alike()
        for member in newcomers:
            self.assertGreater(min(number for _, number in self.trace(member)), 1)

    @slow
    def test_the_only_one_that_had_the_state(self):
        # No member trains on a part of a state.
        for member in self.lose_the_giver(others=0):
            self.assertIn("all ranks that had the whole state are lost", member.hear("hopeless")["why"])
            self.assertEqual(self.trace(member), {})

    def test_an_update_that_not_all_have_made(self):
        members = self.agent.begin(PROGRAM, 3, PLANTED="1")
        self.assertEqual(members[1].hear("failed")["step"], 5)
        others = members[0], members[2]
        # The others wait for it in the next step, or have failed at the end of this one.
        self.agent.wait_for(lambda: all((1, 6) in self.trace(m) or m.heard("failed") for m in others))
        if self.failures_spread:
            self.assertEqual({m.hear("failed")["step"] for m in others}, {6})
        self.agent.regroup(members, urgent=True)
        self.assert_all_go_on_alike()
        self.assertEqual({m.hear("failed", 0.0)["step"] for m in others}, {6})
        self.assertEqual([m["step"] for m in self.agent.regrouped()], [6, 6, 6])

    def test_an_error_of_the_program_is_not_a_lost_member(self):
        (member,) = self.agent.begin(PROGRAM, 1, PLANTED="0")
        member.hear("failed")
        # No message names a newer membership.
        member.hear("hopeless")
        member.hang_up()
        self.assertEqual(member.process.wait(LONG_SECS), 1)
        self.assertIn("RuntimeError: planted", (self.agent.directory / "errors-0").read_text())

    def test_a_layer_without_gradients_is_reported(self):
        # The other ranks would wait for its bucket without an error, and train on each rank's own gradients.
        members = self.agent.begin(PROGRAM, 2, LEAVES_OUT="5")
        for member in members:
            failed = member.hear("failed")
            self.assertIn("Expected to have finished reduction in the prior iteration", failed["error"])
            self.assertEqual(failed["step"], 6)

    def test_when_nothing_helps_it_saves_and_leaves(self):
        first, second = self.agent.begin(PROGRAM, 2)
        self.agent.wait_step(5)
        second.kill()
        first.hear("failed")
        first.send("save")
        first.hear("hopeless")
        step = first.hear("saved")["step"]
        first.send("leave", epoch=2)
        self.assertEqual(first.process.wait(LONG_SECS), 0)
        self.assertEqual(torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"], step)


if __name__ == "__main__":
    unittest.main()
