"""Tests the reading of malleable jobs' logs."""

import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import malleable  # noqa: E402


def log(*steps):
    """Lines of (step, time, world, generation)."""
    names = ("step", "time", "world", "generation")
    return "".join(json.dumps(dict(zip(names, step))) + "\n" for step in steps)


class Useful(unittest.TestCase):
    """Node-seconds of useful steps."""

    def test_pauses_are_no_use(self):
        # A second a step on one node; four seconds for the change; then two nodes.
        text = log((1, 11, 1, 1), (2, 12, 1, 1), (3, 13, 1, 1), (4, 18, 2, 2), (5, 19, 2, 2))
        self.assertEqual(malleable.useful_node_seconds(text), 3 * 1 + 2 * 2)

    def test_a_change_within_a_generation_begins_anew(self):
        text = log((1, 11, 1, 1), (2, 12, 1, 1), (3, 17, 2, 1), (4, 18, 2, 1))
        lines = [json.loads(line) for line in text.splitlines()]
        lines = [line | {"membership": membership} for line, membership in zip(lines, (1, 1, 2, 2))]
        self.assertEqual(malleable.useful_node_seconds("\n".join(map(json.dumps, lines))), 2 * 1 + 2 * 2)

    def test_steps_done_again_count_once_and_a_stall_is_none(self):
        text = log((1, 11, 1, 1), (2, 12, 1, 1), (3, 13, 1, 1))
        text += log((3, 21, 1, 2), (4, 22, 1, 2), (5, 23, 1, 2), (6, 43, 1, 2))
        # The last step counts at most two usual ones.
        self.assertEqual(malleable.useful_node_seconds(text), 5 + 2)

    def test_what_is_cut_off_says_nothing(self):
        self.assertEqual(malleable.useful_node_seconds(""), 0)
        self.assertEqual(malleable.useful_node_seconds(log((1, 11, 1, 1))), 0)
