"""Processes of PyTorch that stay alive while others join, leave and die."""

import collections
import os
import pathlib
import random
import signal
import socket
import sys
import threading
import time
import unittest
import warnings

from agent import LONG_SECS, SRC
from live_agent import LiveAgent

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

import infill  # noqa: E402
from infill._live import works  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402

#: When a newcomer has grown by so much, it is being given its state.
MESSAGE_KIB = 40 << 10

#: So wide, a network has 32 MB of gradients and 96 MB of state: neither is one message.
WIDE = "2000"

#: Each rank notes what its parameters, and what the first one has told the others in a buffer, add up to after each update.
PROGRAM = """
    import os, sys, time, torch, infill
    from infill.torch import ElasticSampler

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(os.getpid())
    time.sleep(float(os.environ.get("SLOW", 0)))
    wide = int(os.environ.get("WIDE", 8))
    ends = torch.nn.Linear(4, wide), torch.nn.Linear(wide, 1)
    net = torch.nn.Sequential(ends[0], torch.nn.BatchNorm1d(wide), torch.nn.Linear(wide, wide), ends[1])
    net.register_buffer("told", torch.zeros(()))
    device = os.environ.get("DEVICE", "cpu")
    net.to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    sampler = ElasticSampler(996, 12, seed=3)
    data = torch.randn(996, 4, generator=torch.Generator().manual_seed(0)).to(device)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
    every = {"checkpoint_secs": float(os.environ.get("EVERY", 600)), "warm": lambda model: model(data[:3]).mean()}
    how = {"backend": os.environ.get("BACKEND"), **every}
    run = infill.live(net, optimizer, sampler, checkpoint="live.pt", **how)
    trace = open(f"trace-{os.getpid()}", "w", buffering=1)
    while run.updates < int(os.environ.get("STEPS", 10**6)):
        for batch, part in run.parts(loader):
            if run.updates == int(os.environ.get("LEAVES_OUT", -1)):
                net[2].forward = lambda rows: rows
            with run.step(part) as step:
                if run.rank == 0:
                    net.told.fill_(run.updates)
                (run.model(batch).square().mean() * part.weight).backward()
                if run.updates == 5 and run.rank == int(os.environ.get("PLANTED", -1)) and run.epoch == 1:
                    time.sleep(0.5)  # The others have the gradients by now, and make their update.
                    raise RuntimeError("planted")
                optimizer.step()
                optimizer.zero_grad()
                step.loss = 0.0
                time.sleep(0.01)
            if step.done:
                whole = sum(p.sum().item() for p in net.parameters()) + net.told.item()
                trace.write(f"{run.updates} {run.epoch} {whole!r}\\n")
            if run.updates >= int(os.environ.get("STEPS", 10**6)):
                break
    run.close()
"""


class Live(unittest.TestCase):
    #: Whether members that wait for one that has failed fail as well, before the agents know.
    failures_spread = True

    def setUp(self):
        self.agent = LiveAgent()
        self.addCleanup(self.agent.close)

    def trace(self, member):
        """What was noted, by membership and number of the update."""
        path = self.agent.directory / f"trace-{member.process.pid}"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {(int(epoch), int(number)): total for number, epoch, total in rows}

    def assert_all_go_on_alike(self):
        """The members make steps, and their parameters are the same."""
        self.agent.regrouped()
        self.agent.wait_step(3)
        here = [{key: v for key, v in self.trace(m).items() if key[0] == self.agent.epoch} for m in self.agent.members]
        common = set.intersection(*(set(rows) for rows in here))
        self.assertTrue(common, "no step that all have made")
        for key in common:
            self.assertEqual(len({rows[key] for rows in here}), 1, f"parameters differ after (epoch, update) {key}")

    def size(self, pid):
        """Descriptors, threads and memory of a process."""
        proc = pathlib.Path(f"/proc/{pid}")
        fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        return len(list((proc / "fd").iterdir())), int(fields["Threads"]), int(fields["VmRSS"].split()[0])

    def assert_changes_leave_nothing(self, urgent_every=0):
        """A process that has been through 25 changes is as large as after five."""
        members = self.agent.begin(PROGRAM, 2)
        sizes = []
        for number in range(25):
            self.agent.regroup(members, urgent=urgent_every > 0 and number % urgent_every == urgent_every - 1)
            self.agent.regrouped()
            self.agent.wait_step(1)
            sizes.append([self.size(member.process.pid) for member in members])
        for early, late in zip(sizes[4], sizes[-1]):
            self.assertEqual(late[:2], early[:2], f"descriptors or threads: {sizes}")
            self.assertLess(late[2], 1.05 * early[2], f"memory: {sizes}")

    def lose(self, lost, number=signal.SIGKILL, **how):
        """A member is gone; the agents have noticed."""
        lost.kill(number)
        self.agent.regroup([m for m in self.agent.members if m is not lost], urgent=True, **how)


class Changing(Live):
    """Memberships that come about as they should."""

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
        # It begins where the others are, not where it would have begun.
        self.assertGreater(min(number for _, number in self.trace(slow)), 1)

        self.agent.regroup([slow, second])
        self.assertEqual(first.process.wait(LONG_SECS), 0)
        first.hear("left", epoch=3)
        self.assert_all_go_on_alike()
        self.assertFalse((self.agent.directory / "live.pt").exists(), "a checkpoint was written")

    def test_nothing_is_left_behind(self):
        self.assert_changes_leave_nothing()

    def test_it_ends_together(self):
        members = self.agent.spawn(PROGRAM, 3, STEPS="100")
        for member in members:
            member.hear("ready")
        self.agent.regroup(members[:2])
        self.agent.wait_step(5)
        self.agent.regroup(members)
        self.agent.end()


class Losing(Live):
    """Members that are gone without notice."""

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
        # Back again, it finds that it was taken for dead.
        second.kill(signal.SIGCONT)
        self.assertEqual(second.process.wait(LONG_SECS), 0)
        second.hear("left", epoch=2)

    def test_one_that_the_others_wait_to_send_to(self):
        members = self.agent.begin(PROGRAM, 3)
        self.agent.wait_step(2)
        # By then the first waits to give it what its normalization counts.
        members[2].kill(signal.SIGSTOP)
        time.sleep(0.5)
        self.lose(members[2])
        self.assert_all_go_on_alike()

    def stop_in_the_middle(self, count):
        """So many members, and two newcomers; of these, the second has a part of the state and takes no more."""
        members = self.agent.begin(PROGRAM, count, WIDE=WIDE)
        newcomers = _, stopped = self.agent.spawn(PROGRAM, 2, WIDE=WIDE)
        for member in newcomers:
            member.hear("ready")
        before = self.size(stopped.process.pid)[2]
        self.agent.regroup([*members, *newcomers])
        self.agent.wait_for(lambda: self.size(stopped.process.pid)[2] > before + MESSAGE_KIB)
        stopped.kill(signal.SIGSTOP)
        return members, newcomers

    def test_one_that_is_lost_in_the_middle_of_a_message(self):
        # It has taken a part of what the first sends it, and never takes the rest.
        (first, second), (other, stopped) = self.stop_in_the_middle(2)
        self.lose(stopped, signal.SIGSTOP)
        self.assert_all_go_on_alike()
        # Of the gradients, too.
        self.lose(second, signal.SIGSTOP)
        self.assert_all_go_on_alike()
        # What was given up does not keep a process from its end.
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

    def test_the_only_one_that_had_the_state(self):
        # Nobody trains on what it has a part of.
        for member in self.lose_the_giver(others=0):
            self.assertIn("all that had the whole state are lost", member.hear("hopeless")["why"])
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

    def test_a_wrong_program_is_no_lost_member(self):
        (member,) = self.agent.begin(PROGRAM, 1, PLANTED="0")
        member.hear("failed")
        # Nobody names a newer membership.
        member.hear("hopeless")
        member.hang_up()
        self.assertEqual(member.process.wait(LONG_SECS), 1)
        self.assertIn("RuntimeError: planted", (self.agent.directory / "errors-0").read_text())

    def test_a_layer_without_gradients_is_told(self):
        # The others of its bucket would wait for it without a word, and train on what each rank has found alone.
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


class Outdated(Live):
    """Changes that a newer one overtakes."""

    @classmethod
    def setUpClass(cls):
        """Two members that live through all of it."""
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
        # Without urgency, too: whoever waits for others sees that they are wanted elsewhere.
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
        # Whoever comes after it in the order is left waiting for who comes before it.
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

    def test_a_store_that_is_none(self):
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
        # Whoever sends just when the other one ends its group is not told so by gloo.
        moments = random.Random(1)
        for number in range(60):
            time.sleep(moments.uniform(0, 0.06))
            self.agent.regroup([self.first, self.second], urgent=True)
            self.agent.regrouped()
            if number % 3 == 0:
                self.agent.wait_step(1)
        self.both()

    def test_an_old_epoch_is_nothing(self):
        first, _ = self.both()
        first.send("regroup", epoch=1, rank=0, world=1, store="127.0.0.1:1", urgent=True)
        first.send("leave", epoch=self.agent.epoch, urgent=True)
        failures = first.heard("failed")
        self.agent.wait_step(5)
        self.assertEqual(first.heard("failed"), failures)
        self.assert_all_go_on_alike()


class Agents(Live):
    """What the other side may do."""

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

        # A checkpoint, from any of them.
        first.send("save")
        step = first.hear("saved")["step"]
        self.assertEqual(torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"], step)
        # Then it is gone.
        for member in (first, second):
            member.hang_up()
        self.agent.wait_step(20)
        self.assertEqual([first.process.poll(), second.process.poll()], [None, None])

    def test_one_that_asks_to_save_gets_what_there_is_then(self):
        """Checkpoints that are written all the time anyway are no answer."""
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
        # What Slurm sends to a part of the job asks nobody: the agent got it, too.
        self.agent.members[1].kill(signal.SIGTERM)
        self.agent.wait_step(20)
        self.agent.members[1].kill(signal.SIGUSR1)
        self.agent.end()
        saved = torch.load(self.agent.directory / "live.pt", weights_only=True)["updates"]
        self.assertEqual(len([r for r in self.agent.reports() if "saved" in r]), 2)

        self.agent.begin(PROGRAM, 1)
        self.assertEqual(self.agent.members[0].heard("regrouped", epoch=2)["step"], saved)

    def test_one_that_offers_nothing(self):
        """The environment is enough, and the rescale signal: what there was before."""
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
        """All but the one that waits for the next call of all runs."""
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

    def test_what_a_program_does_wrong_is_its_own(self):
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
