"""What is given up, and what is kept until it has ended."""

import gc
import sys
import threading
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
    """One that ends when the test says so."""

    def __init__(self):
        self._future = torch.futures.Future()

    def get_future(self):
        return self._future

    def succeed(self):
        self._future.set_result([torch.ones(1)])

    def fail(self):
        self._future.set_exception(RuntimeError("broken"))


class Group:
    """Can be referred to, and kept."""


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
        self.assertEqual(self.works.groups(), [])

    def test_what_cannot_begin_holds_nothing_up(self):
        def fail():
            raise RuntimeError("cannot")

        first, second, third = (self.works.follow(self.group, begin) for begin in (self.begin, fail, self.begin))
        self.begun[0].succeed()
        self.begun[1].succeed()
        self.assertEqual(first.wait(), third.wait())
        with self.assertRaisesRegex(RuntimeError, "cannot"):
            second.wait()

    def test_given_up_all_fail_at_once(self):
        first, second = (self.works.follow(self.group, self.begin) for _ in range(2))
        self.works.give_up()
        for future in (first, second, self.works.follow(Group(), self.begin)):
            with self.assertRaisesRegex(RuntimeError, "given up"):
                future.wait()
        # Those that gloo did not begin it will not.
        self.assertEqual((len(self.begun), self.works.groups()), (1, [self.group]))
        self.begun[0].succeed()
        self.assertEqual(self.works.groups(), [])

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
        """Works that hang, how they end, and their group."""
        group, hanging = Group(), Works()
        work = Work()
        hanging.follow(group, lambda: work)
        hanging.give_up()
        return hanging, work, weakref.ref(group)

    def test_until_it_ends(self):
        hanging, work, group = self.hang()
        works.keep(hanging)
        # Nobody else in here has it now; and an interpreter that ends does not end it, though it drops all.
        kept, works._kept[:] = list(works._kept), []
        del hanging, kept
        gc.collect()
        self.assertIsNotNone(group())
        self.addCleanup(work.succeed)

    def test_no_longer(self):
        hanging, work, group = self.hang()
        works.keep(hanging)
        works.release()
        self.assertIsNotNone(group())
        work.succeed()
        works.release()
        del hanging, work
        gc.collect()
        self.assertIsNone(group())

    def test_few_at_a_time(self):
        every = [self.hang() for _ in range(works.MOST_KEPT)]
        for hanging, _, _ in every:
            works.keep(hanging)
        one_more, last, _ = self.hang()
        with self.assertRaisesRegex(RuntimeError, str(works.MOST_KEPT)):
            works.keep(one_more)
        for _, work, _ in every:
            work.succeed()
        works.keep(one_more)
        last.succeed()
        works.release()
        self.assertEqual(works._kept, [])


if __name__ == "__main__":
    unittest.main()
