"""Tests that paced.py does what it prints, over stops and starts."""

import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PACED = pathlib.Path(__file__).resolve().parents[1] / "paced.py"
sys.path.insert(0, str(PACED.parent))

import paced  # noqa: E402

#: How late a busy machine starts or wakes an interpreter, seconds.
LATE_SECS = 2.0


class Run:
    """One start of paced.py, as an agent would do it."""

    def __init__(self, directory, *flags):
        self.directory = pathlib.Path(directory)
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = self.directory / "progress"
        path.unlink(missing_ok=True)
        self.agent.bind(str(path))
        self.agent.settimeout(20)
        words = ["--checkpoint", str(self.directory / "checkpoint"), "--log", str(self.directory / "log"), *flags]
        environment = {"INFILL_GENERATION": "3", "INFILL_PROGRESS": str(path)}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(PACED), *words], env=environment, stdout=subprocess.PIPE, text=True
        )

    def until_step(self, step):
        """Waits for the datagram of a step. Returns the seconds since the start."""
        while f" step={step}" not in self.agent.recv(1000).decode():
            pass
        return time.monotonic() - self.began

    def stop(self):
        """Asks it to stop. Returns its output, and the seconds until it was gone."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGUSR1)
        return self.wait(), time.monotonic() - begin

    def wait(self):
        out, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, self.process.returncode
        return out

    def state(self):
        return json.loads((self.directory / "checkpoint").read_text())

    def close(self):
        self.process.kill()
        self.process.communicate()
        self.agent.close()


def value(out, key):
    return float(re.search(rf"\b{key}=(\S+)", out)[1])


class Paced(unittest.TestCase):
    def start(self, *flags):
        run = Run(self.directory, *flags)
        self.addCleanup(run.close)
        return run

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name

    def steps_logged(self):
        return [json.loads(line)["step"] for line in (pathlib.Path(self.directory) / "log").read_text().splitlines()]

    def test_costs_are_as_printed(self):
        flags = ["--curve", "1:100", "--start-secs", "0.5", "--save-secs", "0.4", "--steps", "1000"]
        run = self.start(*flags, "--warmup-secs", "0.6", "--warmup-factor", "3")
        seen_start = run.until_step(12)
        out, seen_stop = run.stop()
        # Twelve steps of 0.1 s, plus the warm-up.
        first_step = value(out, "start_secs")
        self.assertGreaterEqual(first_step, 0.5)
        self.assertGreaterEqual(seen_start, first_step + 1.2 + 0.4 - 0.1)
        self.assertLess(seen_start, first_step + 1.2 + 0.4 + LATE_SECS)
        self.assertAlmostEqual(value(out, "warmup_lost_secs"), 0.6 * (1 - 1 / 3), places=3)
        self.assertGreaterEqual(value(out, "save_secs"), 0.4)
        self.assertLessEqual(value(out, "save_secs"), value(out, "stop_secs"))
        self.assertLess(value(out, "stop_secs"), seen_stop)
        self.assertLess(seen_stop, value(out, "stop_secs") + LATE_SECS)

    def test_the_agent_is_told_how_long_saving_took(self):
        run = self.start("--curve", "1:100", "--save-secs", "0.3")
        run.until_step(2)
        out, _ = run.stop()
        run.agent.setblocking(False)
        told = ""
        while "saved=" not in told:
            told = run.agent.recv(1000).decode()
        self.assertAlmostEqual(value(told, "saved"), value(out, "save_secs"), places=3)

    def test_drift_noise_and_stall_go_on_where_they_were(self):
        flags = ["--curve", "1:200", "--steps", "40", "--noise", "0.5", "--seed", "7", "--drift", "1:2"]
        whole = self.start(*flags, "--checkpoint", str(pathlib.Path(self.directory) / "whole"))
        whole.wait()
        expected = json.loads((pathlib.Path(self.directory) / "whole").read_text())
        pathlib.Path(self.directory, "log").unlink()
        first = self.start(*flags, "--stall", "0.5:0.7")
        first.until_step(20)
        first.stop()
        self.assertTrue(first.state()["stalled"])
        done = first.state()["secs"]
        second = self.start(*flags, "--stall", "0.5:0.7")
        begin = time.monotonic()
        second.wait()
        self.assertEqual(self.steps_logged(), list(range(1, 41)))
        self.assertAlmostEqual(second.state()["secs"], expected["secs"], places=9)
        self.assertGreaterEqual(time.monotonic() - begin, expected["secs"] - done)

    def test_a_stall_happens_once(self):
        flags = ["--curve", "1:200", "--steps", "30", "--stall", "0.2:3"]
        first = self.start(*flags)
        first.until_step(4)
        first.stop()  # in the middle of the stall
        second = self.start(*flags)
        second.until_step(30)
        self.assertLess(time.monotonic() - second.began, 26 * 0.05 + LATE_SECS)

    def test_nodes_of_several_leaves_are_told(self):
        leaves = paced.parse_leaves("n[12];n[34]")
        told = [paced.crosses(leaves, nodes.split(",")) for nodes in ("n1,n2", "n3", "n2,n3", "n1,n9")]
        self.assertEqual(told, [False, False, True, True])

    def test_noise_does_not_change_the_mean(self):
        factors = [paced.noise(0.3, 1, step) for step in range(20_000)]
        # Four standard errors: exp(0.3²) - 1 is the relative variance of a step.
        self.assertAlmostEqual(sum(factors) / 20_000, 1.0, delta=4 * (0.0942 / 20_000) ** 0.5)


if __name__ == "__main__":
    unittest.main()
