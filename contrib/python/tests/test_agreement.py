"""How ranks without torch.distributed agree on the step at which they leave."""

import base64
import os
import pathlib
import signal
import socket
import sys
import threading
import time
import unittest
from unittest import mock

from agent import SRC, Agent, free_port

sys.path.insert(0, str(SRC))

from infill import _links, _munge, _plan, _socket_agreement  # noqa: E402

#: A stand-in for MUNGE: who may open a credential is written in it.
MUNGE = """#!/bin/sh
printf 'MUNGE:%s:\\n' "$({ echo "$1"; echo "$(id -u)"; cat; } | base64 -w0)"
"""
UNMUNGE = """#!/bin/sh
text=$(sed 's/^MUNGE://; s/:$//' | base64 -d) || exit 2
[ "$(echo "$text" | sed -n 1p)" = "--restrict-uid=$(id -u)" ] || exit 18
printf 'UID:              somebody (%s)\\n\\n' "$(echo "$text" | sed -n 2p)"
echo "$text" | sed 1,2d
"""

#: Ranks that train together: none begins a step before all have ended the one before.
TRAINING = """
    import os, pathlib, sys, time
    import infill

    place, step = infill.plan(), 0

    @infill.on_rescale
    def save():
        time.sleep(float(os.environ.get("SAVE_SECS", 0)) * place.rank)
        print("saved", step, flush=True)

    while True:
        step += 1
        pathlib.Path(f"{step}.{place.rank}").touch()
        while not all(pathlib.Path(f"{step}.{rank}").exists() for rank in range(place.world_size)):
            time.sleep(0.001)
        infill.step(samples=1, step=step)
"""


def programs(directory):
    """A folder with the stand-ins, for PATH."""
    for name, text in (("munge", MUNGE), ("unmunge", UNMUNGE)):
        path = pathlib.Path(directory, name)
        path.write_text(text)
        path.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


class Together(unittest.TestCase):
    """Ranks that are asked one after another."""

    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)
        self.path = programs(self.agent.directory)

    def ask_one_after_another(self, order, secs):
        for rank in order:
            os.killpg(self.agent.processes[rank].pid, signal.SIGUSR1)
            time.sleep(secs)

    def check_they_leave_together(self, world, **environment):
        ended = self.agent.ended(20)
        self.assertEqual([(code, err) for code, _, err in ended], [(0, "")] * world)
        self.assertEqual(len({out for _, out, _ in ended}), 1, ended)
        return ended

    def test_they_leave_at_the_same_step(self):
        for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
            with self.subTest(order):
                self.agent.start(TRAINING, 3, **self.path)
                self.agent.reports_until(20 * self.agent.generation)
                self.ask_one_after_another(order, 0.3)
                self.check_they_leave_together(3)
                for path in self.agent.directory.glob("*.[0-9]"):
                    path.unlink()

    def test_one_that_was_asked_takes_the_others_with_it(self):
        self.agent.start(TRAINING, 3, **self.path)
        self.agent.reports_until(20)
        self.ask_one_after_another([1], 0)
        self.check_they_leave_together(3)

    def test_none_leaves_before_all_have_saved(self):
        self.agent.start(TRAINING, 3, SAVE_SECS="0.4", **self.path)
        self.agent.reports_until(20)
        self.agent.ask()
        self.check_they_leave_together(3)
        saved = [float(r["saved"]) for r in self.agent.reports() if "saved" in r]
        self.assertEqual(len(saved), 3)
        # Twice 0.4 s, by clocks of two processes.
        self.assertGreaterEqual(min(saved), 0.78)

    def test_one_that_has_died_is_not_waited_for(self):
        self.agent.start("""
            import infill, os, time
            infill.on_rescale(lambda: print("saved", flush=True))
            for step in range(10**6):
                infill.step(1, step)
                if step == 50 and infill.plan().rank == 1:
                    os._exit(3)
                time.sleep(0.01)
        """, 3, **self.path)  # fmt: skip
        self.agent.reports_until(60)
        self.agent.ask()
        self.assertEqual([(code, out) for code, out, _ in self.agent.ended(20)], [(0, "saved\n"), (3, ""), (0, "saved\n")])

    def test_ranks_far_apart_do_not_wait_for_each_other(self):
        self.agent.start("""
            import infill, time
            rank = infill.plan().rank
            infill.on_rescale(lambda: print("saved", flush=True))
            for step in range(10**6):
                infill.step(1, 0 if rank else step)
                time.sleep(2 if rank and step else 0.01)
        """, 2, **self.path)  # fmt: skip
        self.agent.reports_until(2 * _socket_agreement.MOST_APART)
        self.agent.ask()
        ended = self.agent.ended(10)
        self.assertEqual([(code, out) for code, out, _ in ended], [(0, "saved\n")] * 2)
        self.assertIn("steps apart", ended[0][2])

    def test_ranks_that_work_for_themselves_say_so(self):
        alone = "import infill, time; infill.should_checkpoint(); print(time.monotonic()); infill.should_checkpoint()"
        self.agent.start(alone, 2, INFILL_AGREE="0")
        self.assertEqual([(code, err) for code, _, err in self.agent.ended()], [(0, "")] * 2)

    def test_without_munge_they_are_warned(self):
        program = """
            import infill, time
            for _ in range(3):
                infill.should_checkpoint()
                time.sleep(0.2)
        """
        nowhere = self.agent.directory / "none"
        nowhere.mkdir()
        self.agent.start(program, 2, PATH=str(nowhere))
        for code, _, err in self.agent.ended():
            self.assertEqual(code, 0)
            self.assertEqual(err.count("there is no program munge here"), 1, err)


class Strangers(unittest.TestCase):
    """What rank 0 believes of those that connect."""

    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)
        variables = {
            **programs(self.agent.directory), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "INFILL_GENERATION": "2", "INFILL_JOB_ID": "7", "WORLD_SIZE": "2", "SLURM_JOB_NODELIST": "localhost",
        }  # fmt: skip
        patched = mock.patch.dict(os.environ, variables)
        patched.start()
        self.addCleanup(patched.stop)
        self.hub = _plan.plan()
        with mock.patch.object(_socket_agreement, "FIRST_SECS", 0):
            self.agreement = _socket_agreement.SocketAgreement(self.hub)
        self.addCleanup(self.agreement._side.end)

    def place(self, **changed):
        with mock.patch.dict(os.environ, {"RANK": "1", **changed}):
            return _plan.plan()

    def join(self, place):
        """Greets as that rank. True if rank 0 answers."""
        try:
            _links.join(place).close()
        except _links.Stranger:
            return False
        return True

    def address(self):
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(_links.meeting_point(), 1).close()
                return _links.meeting_point()
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def test_the_ranks_of_this_job_alone(self):
        self.address()
        for changed in ({"INFILL_JOB_ID": "8"}, {"INFILL_GENERATION": "1"}, {"WORLD_SIZE": "3"}, {"RANK": "2"}):
            self.assertFalse(self.join(self.place(**changed)), changed)
        self.assertFalse(self.join(self.place(RANK="0")))
        self.assertTrue(self.join(self.place()))

    def test_no_other_user(self):
        self.address()
        uid = os.getuid()
        text = f"--restrict-uid={uid}\n{uid + 1}\n".encode() + _links.greeting(self.hub, 1, "ab" * 32)
        with mock.patch.object(_munge, "seal", return_value=b"MUNGE:" + base64.b64encode(text) + b":"):
            self.assertFalse(self.join(self.place()))

    def test_a_greeting_that_was_overheard_is_worthless(self):
        where = self.address()
        sealed = _munge.seal(_links.greeting(self.hub, 1, "ab" * 32))
        with socket.create_connection(where, 5) as thief:
            thief.sendall(sealed + b"\n")
            nonce = thief.recv(64)
            self.assertEqual(len(nonce), 64)
            thief.sendall(os.urandom(32))
            self.assertEqual(thief.recv(1), b"")
        self.assertTrue(self.join(self.place()))

    def test_garbage_and_silence_keep_nobody_out(self):
        where = self.address()
        silent = [socket.create_connection(where, 5) for _ in range(8)]
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", b"\n", os.urandom(10_000), b"MUNGE:" + b"x" * 5000):
            with socket.create_connection(where, 5) as stranger:
                stranger.sendall(garbage)
                with self.assertRaises((ConnectionError, IndexError)):
                    stranger.recv(1)[0]
        self.assertTrue(self.join(self.place()))
        for connection in silent:
            connection.close()

    def test_a_message_that_was_altered_ends_the_link(self):
        self.address()
        link = _links.join(self.place())
        self.addCleanup(link.close)
        self.assertEqual(link.receive(), (b"r", 0))
        link._socket.sendall(b"a" + bytes(_links.FRAME_BYTES - 1))
        self.assertIsNone(link.receive())
        # What it asked for did not happen.
        self.assertFalse(self.agreement.ask(False))


class Boundaries(unittest.TestCase):
    """The arithmetic of one rank."""

    def test_it_leaves_at_the_boundary_that_was_agreed(self):
        boundary = _socket_agreement.Boundary()
        self.assertEqual([boundary.reach(False) for _ in range(3)], [False] * 3)
        self.assertEqual(boundary.hold(), 3)
        threading.Timer(0.1, boundary.hear, (b"l", 6)).start()
        self.assertEqual([boundary.reach(False) for _ in range(4)], [False, False, True, True])

    def test_without_a_decision_each_leaves_when_it_was_asked(self):
        boundary = _socket_agreement.Boundary()
        boundary.hold()
        with mock.patch.object(_socket_agreement, "DECISION_SECS", 0.1):
            self.assertEqual([boundary.reach(False), boundary.reach(True)], [False, True])


if __name__ == "__main__":
    unittest.main()
