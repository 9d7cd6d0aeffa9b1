"""The package without PyTorch: reports, the environment, signals, children."""

import os
import signal
import socket
import subprocess
import sys
import unittest
from unittest import mock

from agent import SRC, Agent

sys.path.insert(0, str(SRC))

import infill  # noqa: E402
from infill import _progress  # noqa: E402

TRAINING = """
    import sys, time, warnings
    import infill

    @infill.on_rescale
    def save():
        time.sleep(0.2)
        print("saved", flush=True)

    for number in range(10**6):
        infill.step(samples=8, step=number, loss=0.5)
        if number == 0:
            print("listening", flush=True)
        time.sleep(0.01)
"""


class WithAgent(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)

    def until_printed(self, line):
        self.assertEqual(self.agent.processes[0].stdout.readline().strip(), line)


def received(agent):
    """Samples in the datagrams that wait."""
    total = 0.0
    while True:
        try:
            total += float(agent.recv(100).removeprefix(b"samples="))
        except BlockingIOError:
            return total


class Reports(WithAgent):
    """report, in this process."""

    def setUp(self):
        super().setUp()
        path = str(self.agent.directory / "progress")
        for patched in (
            mock.patch.dict(os.environ, {"INFILL_PROGRESS": path}),
            mock.patch.object(_progress, "_is_introduced", True),
        ):
            patched.start()
            self.addCleanup(patched.stop)

    def test_the_words_of_a_report(self):
        infill.report(32)
        infill.report(8, step=7, loss=0.25)
        infill.report(8, step=8, total=100)
        words = [
            {"samples": "32.0"},
            {"samples": "8.0", "step": "7", "loss": "0.25"},
            {"samples": "8.0", "step": "8", "total": "100.0"},
        ]
        self.assertEqual(self.agent.reports(), words)

    def test_the_first_report_says_the_packages_version(self):
        with mock.patch.object(_progress, "_is_introduced", False):
            infill.report(1)
            infill.report(2)
            self.assertEqual(self.agent.reports(), [{"samples": "1.0"}, {"samples": "2.0"}])
        self.assertEqual(self.agent.packages, [infill.__version__])

    def test_a_value_that_is_not_a_number_is_dropped(self):
        infill.report("many")
        infill.report(1, step="first")
        infill.report(1, loss=[])
        self.assertEqual(self.agent.reports(), [])

    def test_an_agent_that_is_behind_gets_the_samples_later(self):
        path = str(self.agent.directory / "behind")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as behind:
            behind.bind(path)
            behind.setblocking(False)
            with mock.patch.dict(os.environ, {"INFILL_PROGRESS": path}):
                for _ in range(5000):
                    infill.report(1)
                got = received(behind)
                self.assertLess(got, 5000, "the kernel kept them all")
                infill.report(1)
                self.assertEqual(got + received(behind), 5001)

    def test_without_a_listener_it_stays_silent(self):
        with mock.patch.dict(os.environ, {"INFILL_PROGRESS": "/nowhere/" + "x" * 200}):
            infill.report(1)
        infill.report(2)
        self.assertEqual(self.agent.reports(), [{"samples": "2.0"}])


class OutsideInfill(unittest.TestCase):
    """Outside infill nothing happens."""

    def test_every_call_is_harmless(self):
        before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)
        infill.on_rescale(lambda: self.fail("saved"))
        infill.report(1)
        infill.step(1, 2, 3)
        infill.leave()
        self.assertFalse(infill.should_checkpoint())
        self.assertEqual((signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)), before)

    def test_the_plan_says_so(self):
        plan = infill.plan()
        self.assertFalse(plan.active)
        self.assertEqual((plan.generation, plan.job, plan.world_size, plan.rank), (0, None, 1, 0))
        self.assertEqual(plan.nodes, (socket.gethostname(),))

    def test_nothing_is_imported_that_was_not_asked_for(self):
        code = "import sys, infill; sys.exit(any(m in sys.modules for m in ('torch', 'keras', 'numpy')))"
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, check=True)

    def test_an_unknown_name(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'stepp'"):
            infill.stepp()


class ThePlan(unittest.TestCase):
    """plan, from the variables that the agent sets."""

    def test_all_of_it(self):
        variables = {
            "INFILL_GENERATION": "3", "INFILL_JOB_ID": "12", "INFILL_RESCALES": "2", "INFILL_PLAN": "default",
            "WORLD_SIZE": "8", "RANK": "5", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1", "SLURM_JOB_NODELIST": "n1,n7",
        }  # fmt: skip
        with mock.patch.dict(os.environ, variables):
            plan = infill.plan()
        self.assertTrue(plan.active)
        self.assertEqual(plan, infill.Plan(3, 12, 2, "default", 8, 5, 4, 1, ("n1", "n7")))
        self.assertEqual((plan.dp, plan.tp, plan.pp, plan.zero, plan.offload), (8, 1, 1, 0, False))

    def test_its_execution_plan(self):
        variables = {
            "INFILL_GENERATION": "1", "INFILL_PLAN": "mixed", "WORLD_SIZE": "16", "INFILL_DP": "4", "INFILL_TP": "2",
            "INFILL_PP": "2", "INFILL_ZERO": "3", "INFILL_OFFLOAD": "1", "INFILL_GA": "8", "INFILL_GC": "1",
        }  # fmt: skip
        with mock.patch.dict(os.environ, variables):
            plan = infill.plan()
        self.assertEqual((plan.exec_plan, plan.dp, plan.tp, plan.pp, plan.zero), ("mixed", 4, 2, 2, 3))
        self.assertEqual((plan.offload, plan.accumulate, plan.checkpointing), (True, 8, True))


class Leaving(WithAgent):
    """step and its parts, in processes of their own."""

    def check_it_saves_and_leaves(self, number, **environment):
        self.agent.start(TRAINING, **environment)
        self.until_printed("listening")
        self.agent.ask(number)
        self.assertEqual(self.agent.ended(), [(0, "saved\n", "")])
        *steps, saved = self.agent.reports()
        self.assertEqual([int(r["step"]) for r in steps], list(range(len(steps))))
        self.assertEqual(saved["samples"], "0")
        self.assertGreaterEqual(float(saved["saved"]), 0.2)
        self.assertLess(float(saved["saved"]), 2)

    def test_the_usual_signal(self):
        self.check_it_saves_and_leaves(signal.SIGUSR1)

    def test_the_end_of_the_time_limit(self):
        self.check_it_saves_and_leaves(signal.SIGTERM)

    def test_a_signal_of_the_users_choice(self):
        for name in ("HUP", "SIGHUP"):
            with self.subTest(name):
                self.check_it_saves_and_leaves(signal.SIGHUP, INFILL_SIGNAL=name)

    def test_before_the_first_step_it_ends_at_once(self):
        self.agent.start("import infill, time; infill.on_rescale(print); print('up', flush=True); time.sleep(60)")
        self.until_printed("up")
        self.agent.ask()
        self.assertEqual(self.agent.ended(), [(-signal.SIGUSR1, "", "")])

    def test_a_custom_loop(self):
        self.agent.start("""
            import atexit, infill, os, signal
            atexit.register(print, "at exit")
            infill.should_checkpoint()
            os.kill(os.getpid(), signal.SIGUSR1)
            assert infill.should_checkpoint() and infill.should_checkpoint()
            print("saved")
            try:
                infill.leave()
                print("still here")
            finally:
                print("cleaned up")
        """)
        self.assertEqual(self.agent.ended(), [(0, "saved\ncleaned up\nat exit\n", "")])
        self.assertEqual([sorted(r) for r in self.agent.reports()], [["samples", "saved"]])

    def test_a_step_without_anything_to_save(self):
        self.agent.start("import infill; infill.step(samples=1)")
        code, _, err = self.agent.ended()[0]
        self.assertEqual(code, 1)
        self.assertIn("RuntimeError: register the function that saves the checkpoint", err)

    def test_a_failed_save_is_no_success(self):
        self.agent.start("""
            import infill, os, signal
            infill.on_rescale(lambda: 1 / 0)
            infill.step(1)
            os.kill(os.getpid(), signal.SIGUSR1)
            infill.step(1)
        """)
        code, _, err = self.agent.ended()[0]
        self.assertEqual(code, 1)
        self.assertIn("ZeroDivisionError", err)
        self.assertNotIn("saved", [key for r in self.agent.reports() for key in r])


FAMILY = """
    import infill, multiprocessing, os, signal, time

    def work(_=None):
        time.sleep(60)

    fork = multiprocessing.get_context("fork")
    infill.should_checkpoint()
    children = [fork.Process(target=work, daemon=True) for _ in range(2)]
    for child in children:
        child.start()
    time.sleep(0.2)
"""


class Children(WithAgent):
    """Forked children, such as those of a DataLoader or a pool."""

    def run_program(self, rest):
        self.agent.start(FAMILY + rest)
        self.assertEqual(self.agent.ended(), [(0, "", "")])
        # Only the end of the pool, which takes a second, delays the end of the process.
        with self.assertRaises(ProcessLookupError):
            os.killpg(self.agent.processes[0].pid, 0)

    def test_they_outlive_signals_for_their_parent(self):
        self.run_program("""
    os.killpg(0, signal.SIGUSR1)
    os.killpg(0, signal.SIGTERM)
    time.sleep(2)
    assert infill.should_checkpoint()
    assert all(child.is_alive() for child in children)
    infill.leave()
""")

    def test_a_child_hears_before_its_parent(self):
        self.run_program("""
    for child in children:
        os.kill(child.pid, signal.SIGTERM)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2)
    assert infill.should_checkpoint()
    assert all(child.is_alive() for child in children)
    infill.leave()
""")

    def test_their_parent_can_end_them(self):
        self.run_program("""
    for child in children:
        child.terminate()
        child.join(20)
    assert [child.exitcode for child in children] == [-signal.SIGTERM] * 2
    with fork.Pool(2) as pool:
        pool.map_async(work, range(2))
        time.sleep(0.2)
    pool.join()
    for child in children:
        child.join()
""")


#: Handlers that were registered before the import are called while the interpreter is taken apart.
FAILING = """
import atexit
atexit.register(print, "taken apart", flush=True)
import infill
from infill._rescale import RESCALE

noted = RuntimeError("noted")
RESCALE.fail_with(noted)
try:
    {ends}
except RuntimeError:
    {handles}
"""


class Failing(unittest.TestCase):
    """A process that fails while threads of it may still wait in a group that was given up."""

    def run_program(self, ends, handles="raise"):
        text = FAILING.format(ends=ends, handles=handles)
        how = {"env": {**os.environ, "PYTHONPATH": str(SRC)}, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, "-B", "-c", text], **how)
        return done.returncode, done.stdout, done.stderr.strip().split("\n")[-1]

    def test_the_interpreter_is_not_taken_apart(self):
        self.assertEqual(self.run_program("raise noted"), (1, "", "RuntimeError: noted"))
        self.assertEqual(self.run_program("raise noted", "raise KeyError(3)"), (1, "", "KeyError: 3"))

    def test_an_error_that_the_program_handles(self):
        self.assertEqual(self.run_program("raise noted", "pass"), (0, "taken apart\n", ""))
        self.assertEqual(self.run_program("raise noted", "raise SystemExit(3)"), (3, "taken apart\n", ""))

    def test_another_error(self):
        said = (1, "taken apart\n", "ValueError: other")
        self.assertEqual(self.run_program("raise ValueError('other')"), said)


if __name__ == "__main__":
    unittest.main()
