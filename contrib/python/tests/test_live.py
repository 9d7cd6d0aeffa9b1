"""Processes of PyTorch that stay alive while others join and leave."""

import collections
import os
import signal
import subprocess
import sys
import threading
import unittest
import warnings

from agent import LONG_SECS, SRC
from live_case import PROGRAM, Live, torch

sys.path.insert(0, str(SRC))

import infill  # noqa: E402
from infill._live import works  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402


class Changing(Live):
    """Memberships that form without trouble."""

    def test_newcomers_cost_nothing_until_they_are_in(self):
        first, second = self.agent.begin(PROGRAM, 2)
        slow, dying, leaving = self.agent.spawn(PROGRAM, 1, SLOW="1") + self.agent.spawn(PROGRAM, 2)
        self.agent.wait_step(1)
        dying.hear("hello")
        dying.kill()
        leaving.hear("ready")
        leaving.send("leave", epoch=self.agent.epoch + 1)
        self.assertEqual(leaving.process.wait(LONG_SECS), 0)
        slow.hear("ready")
        self.agent.wait_step(1)
        self.assertEqual([m.heard("failed") or m.heard("regrouped")["epoch"] for m in (first, second)], [1, 1])

        self.agent.regroup([first, second, slow])
        self.assert_all_go_on_alike()
        # It begins where the others are, not at the beginning.
        self.assertGreater(min(number for _, number in self.trace(slow)), 1)

        self.agent.regroup([slow, second])
        self.assertEqual(first.process.wait(LONG_SECS), 0)
        first.hear("left", epoch=3)
        self.assert_all_go_on_alike()
        self.assertFalse((self.agent.directory / "live.pt").exists(), "a checkpoint was written")

    def test_nothing_is_left_behind(self):
        self.assert_changes_leave_nothing()

    def test_it_ends_together(self):
        # Here, the processes are not forked: each starts an interpreter, and ends with it.
        self.agent.launch = subprocess.Popen
        members = self.agent.spawn(PROGRAM, 3, STEPS="100")
        for member in members:
            member.hear("ready")
        self.agent.regroup(members[:2])
        self.agent.wait_step(5)
        self.agent.regroup(members)
        self.agent.end()


class Agents(Live):
    """Behaviours of the agent's side."""

    def test_one_that_talks_nonsense_then_saves_then_is_gone(self):
        first, second = self.agent.begin(PROGRAM, 2)
        for line in ("nonsense", '{"type": "regroup", "epoch": 2}', '{"type": "tea"}', '{"type": "host", "epoch": "x"}'):
            first.send_line(line.encode())
        first.send("roll")
        first.hear("here")
        self.assertEqual(
            [m["text"] for m in first.said if m["type"] == "error"],
            [
                "expected a JSON object on a line of its own",
                'expected "rank" in "regroup" to be an integer from 0 on',
                'expected "epoch" in "host" to be an integer from 1 on',
            ],
        )
        self.agent.regroup([second, first])
        self.assert_all_go_on_alike()

        # A checkpoint from any of them.
        first.send("save")
        step = first.hear("saved")["step"]
        self.assertEqual(torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"], step)
        # Then the agent is gone.
        for member in (first, second):
            member.hang_up()
        self.agent.wait_step(20)
        self.assertEqual([first.process.poll(), second.process.poll()], [None, None])

    def test_one_that_asks_to_save_gets_the_present_state(self):
        """Checkpoints that are written regularly anyway do not count as an answer."""
        (member,) = self.agent.begin(PROGRAM, 1, EVERY="0")
        self.agent.wait_step(20)
        self.assertTrue((self.agent.directory / "live.pt").exists())
        self.assertEqual(member.heard("saved"), None)
        for _ in range(5):
            member.said.clear()
            member.send("roll")
            before = member.hear("here")["step"]
            member.send("save")
            saved = member.hear("saved")["step"]
            self.assertGreaterEqual(saved, before)
            self.assertGreaterEqual(torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"], saved)

    def test_one_that_asks_for_a_restart(self):
        self.agent.begin(PROGRAM, 2)
        self.agent.wait_step(2)
        # Slurm's signal to a part of the job asks no process to leave: the agent got it too.
        self.agent.members[1].kill(signal.SIGTERM)
        self.agent.wait_step(20)
        self.agent.members[1].kill(signal.SIGUSR1)
        self.agent.end()
        saved = torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"]
        self.assertEqual(len([r for r in self.agent.reports() if "saved" in r]), 2)

        self.agent.begin(PROGRAM, 1)
        self.assertEqual(self.agent.members[0].heard("regrouped", epoch=2)["step"], saved)

    def test_one_that_offers_nothing(self):
        """The environment and the rescale signal are enough, as before."""
        self.agent.start(PROGRAM, world=2)
        self.agent.wait_step(5)
        self.agent.ask()
        self.assertEqual([(code, err) for code, _, err in self.agent.ended()], [(0, ""), (0, "")])
        saved = torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"]
        self.agent.start(PROGRAM, world=1, STEPS=str(saved + 3))
        self.assertEqual([(code, err) for code, _, err in self.agent.ended()], [(0, "")])
        numbers = [key[1] for key in self.trace(collections.namedtuple("M", "process")(self.agent.processes[0]))]
        self.assertEqual(numbers, [saved + 1, saved + 2, saved + 3])

    def test_a_program_that_wants_no_conversation(self):
        self.agent.start(
            "import infill\ninfill.on_rescale(print)\nfor n in range(10**9): infill.step(1, n)",
            INFILL_CONTROL=str(self.agent.directory / "control"),
        )
        self.agent.wait_step(5)
        self.agent.ask()
        self.assertEqual(self.agent.ended(), [(0, "\n", "")])


class Alone(unittest.TestCase):
    """In this process, without an agent."""

    def setUp(self):
        self.net = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.sampler = ElasticSampler(8, 4, rank=0, world_size=1)
        self.hook, self.threads = sys.excepthook, self.own_threads()
        self.run_ = infill.live(self.net, self.optimizer, self.sampler)
        self.addCleanup(self.run_.close)

    def own_threads(self):
        """All threads except the one that waits for the next call of all runs."""
        return [thread for thread in threading.enumerate() if thread.name != works.THREAD]

    def test_an_update_outside_of_a_step_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "belongs into `with run.step"):
            self.optimizer.step()

    def test_an_update_that_is_left_out_counts(self):
        for _, part in self.run_.parts([None] * 2):
            with self.run_.step(part) as step:
                pass
            self.assertTrue(step.done)
        self.assertEqual((self.run_.updates, self.sampler.epoch), (2, 1))

    def test_errors_of_the_program_pass_through(self):
        with self.assertRaisesRegex(RuntimeError, "mine"):
            for _, part in self.run_.parts([None] * 2):
                with self.run_.step(part):
                    raise RuntimeError("mine")

    def test_nothing_else_is_changed(self):
        self.assertIs(sys.excepthook, self.hook)
        self.assertEqual(self.own_threads(), self.threads)
        self.assertLessEqual(threading.active_count(), len(self.threads) + 1)
        self.assertNotIn("MASTER_ADDR", os.environ)


warnings.filterwarnings("ignore", message=".*process group.*")

if __name__ == "__main__":
    unittest.main()
