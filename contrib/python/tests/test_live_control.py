"""The conversation with the agent, without PyTorch."""

import contextlib
import io
import json
import os
import socket
import sys
import threading
import time
import unittest
from unittest import mock

from agent import LONG_SECS, SRC

sys.path.insert(0, str(SRC))

from infill._live import control  # noqa: E402
from infill._live.messages import Change, Malformed, change, parse  # noqa: E402

REGROUP = {"type": "regroup", "epoch": 3, "rank": 1, "world": 2, "store": "n1:4000"}


class Messages(unittest.TestCase):
    """parse and change."""

    def test_memberships(self):
        self.assertEqual(
            change(parse(json.dumps({**REGROUP, "urgent": True, "nodes": ["n1", "n2"], "colour": "red"}))),
            Change(3, True, False, 1, 2, ("n1", 4000), ("n1", "n2")),
        )
        self.assertEqual(change(parse(json.dumps({**REGROUP, "store": "[::1]:4000"}))).store, ("::1", 4000))
        self.assertEqual(change(parse('{"type": "leave", "epoch": 4}')), Change(4, False, True))

    def test_a_secret_is_taken_and_never_printed(self):
        for text, secret in (("0f" * 32, b"\x0f" * 32), (None, None)):
            taken = change(parse(json.dumps({**REGROUP, "secret": text})))
            self.assertEqual(taken.secret, secret)
            self.assertNotIn("secret", repr(taken))
        for wrong in ("", "0f" * 31, "0F" * 32, "zz" * 32, 7):
            with self.subTest(wrong), self.assertRaisesRegex(Malformed, '"secret" in "regroup" to be 32 bytes') as raised:
                parse(json.dumps({**REGROUP, "secret": wrong}))
            self.assertNotIn("0f0f", str(raised.exception))

    def test_unknown_messages_are_ignored(self):
        self.assertIsNone(parse('{"type": "tea", "epoch": "x"}'))

    def test_malformed_messages_say_what_was_expected(self):
        for wrong, expected in (
            ("", "a JSON object"),
            ("[1]", 'a "type"'),
            ('{"type": 1}', 'a "type"'),
            ('{"type": "leave"}', '"epoch" in "leave" to be an integer from 1 on'),
            ('{"type": "leave", "epoch": true}', '"epoch" in "leave" to be an integer from 1 on'),
            (json.dumps({**REGROUP, "rank": 2}), '"rank" in "regroup" to be less than "world"'),
            (json.dumps({**REGROUP, "store": "n1"}), '"store" in "regroup" to be "host:port"'),
            (json.dumps({**REGROUP, "store": "n1:99999"}), '"store" in "regroup" to be "host:port"'),
            (json.dumps({**REGROUP, "urgent": 1}), '"urgent" in "regroup" to be true or false'),
            (json.dumps({**REGROUP, "nodes": "n1"}), '"nodes" in "regroup" to be a list of strings'),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(Malformed, expected):
                parse(wrong)


class Conversation(unittest.TestCase):
    """Control, and an agent that is a socket."""

    def setUp(self):
        ours, self.agent = socket.socketpair()
        self.addCleanup(self.agent.close)
        self.lines = self.agent.makefile("r")
        self.addCleanup(self.lines.close)
        self.control = control.Control(ours)
        threading.Thread(target=self.send, args=({"type": "welcome", "version": 1},)).start()
        self.assertTrue(self.control.greet())
        self.assertEqual(self.heard(), {"type": "hello", "version": 2, "pid": os.getpid(), "local_rank": 0})

    def send(self, message):
        self.agent.sendall(json.dumps(message).encode() + b"\n")

    def heard(self):
        return json.loads(self.lines.readline())

    def test_the_newest_membership_counts(self):
        for epoch in (2, 5, 3):
            self.send({**REGROUP, "epoch": epoch, "urgent": epoch == 2})
        self.assertEqual(self.control.wait_newer(4, LONG_SECS).epoch, 5)
        self.assertIsNone(self.control.wait_newer(5, 0.2))
        self.assertEqual(self.control.urgent_epoch, 2)

    def test_a_line_that_is_too_long_and_one_in_pieces(self):
        self.agent.sendall(b"x" * (control.MAX_LINE_BYTES + 100000) + b"\n")
        self.assertIn("no line longer", self.heard()["text"])
        whole = json.dumps({**REGROUP, "epoch": 9}).encode() + b"\n"
        self.agent.sendall(whole[:20])
        time.sleep(0.2)
        self.agent.sendall(whole[20:])
        self.assertEqual(self.control.wait_newer(8, LONG_SECS).epoch, 9)

    def test_a_store_that_cannot_be_opened(self):
        def refuse(epoch):
            raise RuntimeError("no port")

        self.control.on_host = refuse
        self.send({"type": "host", "epoch": 4})
        self.assertEqual(self.heard(), {"type": "failed", "epoch": 4, "error": "could not host a store: no port"})

    def test_an_agent_that_reads_nothing(self):
        for number in range(100000):
            self.control.say("here", epoch=number)
        self.assertTrue(self.control.alive)

    def test_an_agent_that_goes(self):
        self.agent.shutdown(socket.SHUT_RDWR)
        self.assertIsNone(self.control.wait_newer(0, None))
        self.assertFalse(self.control.alive)
        self.control.say("here")


class Connecting(unittest.TestCase):
    """connect."""

    def test_no_agent_is_no_error(self):
        with contextlib.redirect_stderr(io.StringIO()):
            for variables in ({"INFILL_CONTROL": ""}, {"INFILL_CONTROL": "/nowhere"}):
                with mock.patch.dict(os.environ, variables):
                    self.assertIsNone(control.connect())

    def test_a_launcher_in_between(self):
        with mock.patch.dict(os.environ, {"INFILL_CONTROL": "/nowhere", "TORCHELASTIC_RUN_ID": "1"}):
            self.assertIsNone(control.connect())

    def test_another_version(self):
        for version, is_spoken in ((0, False), (1, True), (2, True), (3, False)):
            ours, agent = socket.socketpair()
            self.addCleanup(agent.close)
            agent.sendall(json.dumps({"type": "welcome", "version": version}).encode() + b"\n")
            with self.subTest(version):
                self.assertEqual(control.Control(ours).greet(), is_spoken)


if __name__ == "__main__":
    unittest.main()
