"""Works that are given up, and works that are kept until they have ended."""

import gc
import sys
import threading
import time
import unittest
import weakref

from agent import LONG_SECS, SRC

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill._live import works  # noqa: E402
from infill._live.works import Works  # noqa: E402


class Work:
    """A work that ends when the test says so."""

    def __init__(self):
        self._future = torch.futures.Future()

    def get_future(self):
        return self._future

    def is_completed(self):
        return self._future.done()

    def succeed(self):
        self._future.set_result([torch.ones(1)])

    def fail(self):
        self._future.set_exception(RuntimeError("broken"))


class Group:
    """A group that can have weak references."""


class Following(unittest.TestCase):
    def setUp(self):
        self.works, self.group, self.begun = Works(), Group(), []

    def begin(self):
        self.begun.append(Work())
        return self.begun[-1]

    def test_one_after_the_other_in_a_group(self):
        first, second = (self.works.follow(self.group, self.begin) for _ in range(2))
        other = self.works.follow(Group(), self.begin)
        self.assertEqual(len(self.begun), 2)
        self.begun[1].succeed()
        self.assertEqual(other.wait(), torch.ones(1))
        self.begun[0].fail()
        self.assertEqual(len(self.begun), 3)
        self.begun[2].succeed()
        with self.assertRaisesRegex(RuntimeError, "broken"):
            first.wait()
        self.assertEqual(second.wait(), torch.ones(1))
        self.assertFalse(self.works.are_under_way())

    def test_a_work_that_cannot_begin_delays_no_other(self):
        def fail():
            raise ValueError("cannot")

        first = self.works.follow(self.group, self.begin)
        failing = [self.works.follow(self.group, fail) for _ in range(sys.getrecursionlimit())]
        last = self.works.follow(self.group, self.begin)
        self.begun[0].succeed()
        self.begun[1].succeed()
        self.assertEqual(first.wait(), last.wait())
        for future in failing:
            with self.assertRaisesRegex(RuntimeError, "cannot"):
                future.wait()

    def test_given_up_all_fail_at_once(self):
        first, second = (self.works.follow(self.group, self.begin) for _ in range(2))
        self.works.give_up()
        for future in (first, second, self.works.follow(Group(), self.begin)):
            with self.assertRaisesRegex(RuntimeError, "given up"):
                future.wait()
        # Works that gloo has not begun will not begin.
        self.assertEqual(len(self.begun), 1)
        self.assertTrue(self.works.are_under_way())
        self.begun[0].succeed()
        self.assertFalse(self.works.are_under_way())

    def test_on_another_thread(self):
        self.assertEqual(self.works.elsewhere(lambda: 7), 7)
        with self.assertRaisesRegex(RuntimeError, "division"):
            self.works.elsewhere(lambda: 1 / 0)
        hangs = threading.Event()
        self.addCleanup(hangs.set)
        threading.Timer(0.1, self.works.give_up).start()
        with self.assertRaisesRegex(RuntimeError, "given up"):
            self.works.elsewhere(hangs.wait)
        with self.assertRaisesRegex(RuntimeError, "given up"):
            self.works.elsewhere(lambda: self.fail("it began"))

    def test_threads_that_hang_are_bounded(self):
        hang = threading.Event()
        threads = [threading.Thread(target=hang.wait, name=works.THREAD) for _ in range(works.MOST_KEPT)]
        for thread in threads:
            thread.start()
        with self.assertRaisesRegex(RuntimeError, str(works.MOST_KEPT)):
            self.works.elsewhere(lambda: self.fail("it began"))
        hang.set()
        for thread in threads:
            thread.join(LONG_SECS)
        self.assertEqual(self.works.elsewhere(lambda: 7), 7)


class Keeping(unittest.TestCase):
    """Groups in which something hangs outlive their end."""

    def hang(self):
        """A hanging work in a group, how it ends, and whether the group still exists."""
        group, hanging, work = Group(), Works(), Work()
        hanging.follow(group, lambda: work)
        hanging.give_up()
        return hanging, work.succeed, weakref.ref(group)

    def test_until_it_ends_and_no_longer(self):
        hanging, succeed, group = self.hang()
        works.keep(hanging)
        hanging = weakref.ref(hanging)
        works.keep(Works())
        self.assertIsNotNone(hanging())
        # gloo may still use a work that has just ended. Its group ends with the next check.
        succeed()
        self.assertIsNotNone(group())
        works.keep(Works())
        del succeed
        gc.collect()
        self.assertEqual((hanging(), group()), (None, None))

    def test_ended_works_are_released(self):
        ended, group = Works(), Group()
        work = Work()
        ended.follow(group, lambda: work)
        made = ended.elsewhere(Group)
        group, made = weakref.ref(group), weakref.ref(made)
        work.succeed()
        self.assertIsNotNone(group() and made())
        works.keep(ended)
        del work
        gc.collect()
        self.assertEqual((group(), made()), (None, None))

    def test_an_ended_training_waits_for_them_for_a_moment(self):
        hanging, succeed, _ = self.hang()
        works.keep(hanging)
        began = time.monotonic()
        works.settle(0.2)
        self.assertTrue(hanging.are_under_way())
        self.assertGreaterEqual(time.monotonic() - began, 0.2)
        threading.Timer(0.1, succeed).start()
        works.settle(LONG_SECS)
        self.assertFalse(hanging.are_under_way())
        works.keep(Works())
        began = time.monotonic()
        works.settle(LONG_SECS)
        self.assertLess(time.monotonic() - began, LONG_SECS / 2)

    def test_few_at_a_time(self):
        every = [self.hang() for _ in range(works.MOST_KEPT)]
        for hanging, _, _ in every:
            works.check()
            works.keep(hanging)
        with self.assertRaisesRegex(RuntimeError, str(works.MOST_KEPT)):
            works.check()
        for _, succeed, _ in every:
            succeed()
        works.keep(Works())
        works.check()


if __name__ == "__main__":
    unittest.main()
