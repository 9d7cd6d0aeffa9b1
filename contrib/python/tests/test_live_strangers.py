"""Strangers to a training are not believed, and older members still get in."""

import pathlib
import subprocess
import sys
import threading
import unittest
from unittest import mock

from agent import LONG_SECS, SRC
from live_case import PROGRAM, Live, torch

sys.path.insert(0, str(SRC))

from infill._live import group, store  # noqa: E402
from infill._live.keys import Keys  # noqa: E402

STRANGER = pathlib.Path(__file__).with_name("stranger.py")

#: Trains alone until others come. After its tenth update, its scheduler holds a value that only pickle could hand
#: over.
ODD_PROGRAM = """
    import os, time, torch, infill
    from infill.torch import ElasticSampler

    class Scheduler:
        odd = object() if os.environ.get("ODD") == "always" else None
        def state_dict(self):
            return {"last": [{"odd": self.odd}]}
        def load_state_dict(self, state):
            pass

    torch.set_num_threads(1)
    net, scheduler = torch.nn.Linear(2, 1), Scheduler()
    optimizer, sampler = torch.optim.SGD(net.parameters(), lr=0.1), ElasticSampler(96, 12)
    loader = torch.utils.data.DataLoader(torch.ones(96, 2), batch_sampler=sampler)
    run = infill.live(net, optimizer, sampler, scheduler=scheduler, checkpoint="live.pt")
    while True:
        for batch, part in run.parts(loader):
            with run.step(part):
                run.model(batch).mean().backward()
                optimizer.step()
                time.sleep(0.01)
            if run.updates > 10:
                scheduler.odd = object()
"""


def stranger(*words, **how):
    """A training that has begun."""
    command = [sys.executable, "-B", str(STRANGER), *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **how)
    line = process.stdout.readline()
    assert line.startswith("at "), line
    return process


class Strangers(Live):
    def test_one_that_takes_a_members_place_is_not_believed(self):
        (member,) = self.agent.begin(PROGRAM, 1)
        port = member.heard("store")["port"]
        trace = self.agent.directory / "trace-of-a-stranger"
        self.agent.epoch += 1
        member.send("host", epoch=2)
        member.hear("store", epoch=2)
        place = {"store": f"127.0.0.1:{port}", "secret": self.agent.secret}
        member.send("regroup", epoch=2, rank=0, world=2, **place)
        self.addCleanup(self.agent.regroup, [member], urgent=True)
        with stranger("join", port, 2, 1, 2, trace, 4) as process:
            self.assertIn("done", process.communicate(timeout=LONG_SECS)[0])
        self.assertFalse(trace.exists(), "what it sent was called")
        self.agent.regroup([member], urgent=True)
        self.assert_all_go_on_alike()
        self.assertIsNone(member.heard("regrouped", epoch=2))

    def test_one_that_writes_all_the_time_delays_no_member(self):
        members = self.agent.begin(PROGRAM, 2)
        host = members[0]
        with stranger("flood", host.heard("store")["port"], LONG_SECS) as process:
            self.addCleanup(process.kill)
            for _ in range(6):
                members.reverse()
                self.agent.regroup(members, host=host)
                self.agent.regrouped()
                self.agent.wait_step(1)
            self.assert_all_go_on_alike()
            self.assertIsNone(process.poll())
            process.kill()
        self.assertEqual([member.heard("failed") for member in members], [None, None])


class Older(Live):
    def errors(self, member):
        return (self.agent.directory / f"errors-{self.agent.everybody.index(member)}").read_text()

    def test_agents_without_secrets(self):
        for version in (1, 2):
            self.agent.version, self.agent.secret = version, None
            members = self.agent.begin(PROGRAM, 2)
            self.agent.regroup(members)
            self.assert_all_go_on_alike()
            for member in members:
                self.assertEqual(self.errors(member).count("hands out no secret"), 1, self.errors(member))
                member.kill()

    def test_with_a_secret_nothing_is_said(self):
        (member,) = self.agent.begin(PROGRAM, 1)
        self.assertEqual(self.errors(member), "")

    def test_a_state_unsuited_from_the_beginning_restarts_at_each_change(self):
        (member,) = self.agent.spawn(ODD_PROGRAM, ODD="always")
        self.agent.wait_step(3)
        self.assertIsNone(member.heard("hello"))
        why = "each change of size is a restart: others/scheduler/last/0/odd: a builtins.object cannot be handed over"
        self.assertIn(why, self.errors(member))

    def test_a_state_that_becomes_unsuited_is_named_and_restarts(self):
        (first,) = self.agent.begin(ODD_PROGRAM, 1)
        self.agent.wait_step(15)
        (second,) = self.agent.spawn(ODD_PROGRAM)
        second.hear("ready")
        self.agent.regroup([first, second])
        self.assertIn("others/scheduler/last/0/odd: a builtins.object", first.hear("hopeless")["why"])
        first.send("save")
        step = first.hear("saved")["step"]
        self.assertGreaterEqual(step, 15)


class Meeting(unittest.TestCase):
    """At a store that everyone may write to."""

    KEYS = Keys(b"s" * 32, 3)

    def setUp(self):
        self.store = torch.distributed.HashStore()

    def looks(self, rank, world, most=5):
        """Whether it meets the others within this many checks."""
        left = iter(range(most))
        try:
            store.meet(self.store, self.KEYS, rank, world, lambda: next(left, None) is None)
        except RuntimeError:
            return False
        return True

    def test_names_of_keys_follow_from_secret_and_epoch(self):
        names = {Keys(secret, epoch).prefix() for secret in (b"s" * 32, b"t" * 32) for epoch in (3, 4)}
        self.assertEqual(len(names), 4)
        self.assertEqual(Keys(None, 3).prefix(), "epoch/3")

    def test_forged_entries_count_no_member(self):
        forged = {"": b"x", "of another epoch": Keys(b"s" * 32, 4).tag("here/1"), "of another": self.KEYS.tag("here/0")}
        for what, value in forged.items():
            self.store.set("here/1", value)
            self.store.set("all", value)
            with self.subTest(what):
                self.assertEqual((self.looks(0, 2), self.looks(1, 3)), (False, False))
        self.assertTrue(self.looks(0, 2), "the other one was here meanwhile")
        self.assertTrue(self.looks(1, 2))
        self.assertFalse(self.looks(1, 3), "no one has spoken for a group of this size")


class Proof(unittest.TestCase):
    """The check that the processes connected by gloo are members."""

    def exchanged(self, secrets, damage=lambda said: said):
        """The result of each rank for the others' numbers, or its error."""
        all_said, barrier, found = [b""] * len(secrets), threading.Barrier(len(secrets), timeout=30), [None] * len(secrets)

        def run(rank, secret):
            one = group.Group(3, rank, len(secrets), None, Keys(secret, 3))

            def exchange(said):
                all_said[rank] = said
                barrier.wait()
                everybody = [damage(each) if each is not said else each for each in all_said]
                barrier.wait()
                return everybody

            with mock.patch.object(one, "_exchange", exchange):
                try:
                    one._nonces = b"".join(one._exchange(bytes([rank]) * 32))
                    found[rank] = one.gather(7 - 9 * rank)
                except RuntimeError as error:
                    found[rank] = str(error)

        threads = [threading.Thread(target=run, args=each) for each in enumerate(secrets)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def test_members_hear_each_other(self):
        self.assertEqual(self.exchanged([b"s" * 32] * 3), [[7, -2, -11]] * 3)

    def test_a_rank_with_another_secret_is_named(self):
        found = self.exchanged([b"s" * 32, b"s" * 32, b"t" * 32])
        self.assertEqual(found[:2], ["rank 2 of 3 does not prove that it is a member"] * 2)

    def test_a_number_changed_on_the_way_is_refused(self):
        found = self.exchanged([b"s" * 32] * 2, lambda said: said[:-1] + bytes([said[-1] ^ 1]))
        self.assertIn("rank 1 of 2 does not prove", found[0])


if __name__ == "__main__":
    unittest.main()
