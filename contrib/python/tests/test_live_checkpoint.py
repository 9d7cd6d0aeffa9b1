"""The checkpoint is never replaced by an older one, even if a process is late."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from agent import SRC

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill._live import checkpoint  # noqa: E402
from infill._live.checkpoint import Checkpoint  # noqa: E402


def tree(begun, epoch, updates):
    return {"begun": begun, "epoch": epoch, "updates": updates, "net": {"weight": torch.full((3,), float(updates))}}


class Fence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "train.pt"

    def save(self, *stamp):
        """Whether the state of this process is on disk after saving, and its output."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            is_there = Checkpoint(str(self.path), 600).save(tree(*stamp))
        return is_there, said.getvalue()

    def on_disk(self):
        saved = Checkpoint(str(self.path), 600).load()
        self.assertEqual(saved["net"]["weight"].tolist(), [saved["updates"]] * 3)
        return saved["begun"], saved["epoch"], saved["updates"]

    def parts(self):
        return sorted(path.name for path in self.folder.glob("*.part"))

    def test_a_newer_one_replaces_an_older_one(self):
        for stamp in ((1, 3, 10), (1, 3, 10), (1, 3, 11), (1, 4, 11), (1, 5, 10), (2, 1, 9)):
            self.assertEqual(self.save(*stamp), (True, ""))
            self.assertEqual(self.on_disk(), stamp)
        self.assertEqual(self.parts(), [])

    def test_an_older_one_replaces_nothing(self):
        self.save(2, 5, 100)
        for stamp, is_there in (((2, 5, 99), True), ((2, 4, 100), True), ((2, 4, 101), False), ((1, 9, 300), False)):
            there, said = self.save(*stamp)
            self.assertEqual((there, self.on_disk()), (is_there, (2, 5, 100)))
            self.assertIn(f"train.pt stays as it is: it is of update 100 in membership 5, newer than update {stamp[2]}", said)
        self.assertEqual(self.parts(), [])

    def test_a_process_stopped_while_writing_comes_too_late(self):
        written, goes_on = threading.Event(), threading.Event()

        def wait(*_):
            written.set()
            goes_on.wait(60)

        late, done = Checkpoint(str(self.path), 600), []
        elsewhere = mock.patch.multiple(checkpoint.os, fsync=wait, getpid=lambda: 7)
        with elsewhere, contextlib.redirect_stderr(io.StringIO()):
            late.save_for(tree(1, 3, 50), lambda: done.append("saved"))
            self.assertTrue(written.wait(60))
            self.assertEqual(len(self.parts()), 1)
        # The others have continued without it. They also remove its unfinished file.
        with mock.patch.object(checkpoint.os, "fsync"):
            self.save(1, 4, 49)
        self.assertEqual((self.parts(), self.on_disk()), ([], (1, 4, 49)))
        with contextlib.redirect_stderr(io.StringIO()):
            goes_on.set()
            late._finish()
        self.assertEqual((done, self.on_disk()), ([], (1, 4, 49)))

    def test_parts_of_memberships_before_and_those_of_yesterday_are_removed(self):
        def part(name, age=0.0):
            path = self.folder / name
            path.write_text("")
            os.utime(path, (time.time() - age,) * 2)

        yesterday = 2 * checkpoint.PART_SECS
        for name in ("train.pt.1-9.n1.7.part", "train.pt.2-4.n1.7.part", "train.pt.2-5.n1.7.part", "train.pt.2-6.n1.7.part"):
            part(name)
        part("train.pt.n1.7.part", yesterday)
        part("train.pt.n2.7.part")
        part("other.pt.1-1.n1.7.part", yesterday)
        self.save(2, 5, 1)
        left = ["other.pt.1-1.n1.7.part", "train.pt.2-5.n1.7.part", "train.pt.2-6.n1.7.part", "train.pt.n2.7.part"]
        self.assertEqual(self.parts(), left)

    def test_a_checkpoint_without_a_stamp_is_older(self):
        torch.save({"updates": 500, "net": {}}, self.path)
        self.assertEqual(self.save(1, 1, 3), (True, ""))
        self.assertEqual(self.on_disk(), (1, 1, 3))

    def test_one_that_cannot_be_read_is_replaced(self):
        self.path.write_bytes(b"torn")
        there, said = self.save(1, 1, 3)
        self.assertTrue(there and "cannot be read" in said, said)
        self.assertEqual(self.on_disk(), (1, 1, 3))

    def test_without_locks_and_with_a_lock_that_is_never_released(self):
        with mock.patch.object(checkpoint.fcntl, "flock", side_effect=OSError("no locks")):
            self.assertTrue(self.save(1, 1, 3)[0])
            self.assertFalse(self.save(0, 1, 9)[0])
        with open(f"{self.path}.lock", "ab") as file, mock.patch.object(checkpoint, "LOCK_SECS", 0.2):
            self.assertTrue(checkpoint._lock(file.fileno()))
            self.assertTrue(self.save(1, 1, 4)[0])
        self.assertEqual(self.on_disk(), (1, 1, 4))

    def test_after_waiting_for_the_lock_a_newer_checkpoint_counts(self):
        with open(f"{self.path}.lock", "ab") as file:
            self.assertTrue(checkpoint._lock(file.fileno()))
            late = threading.Thread(target=self.save, args=(1, 1, 9))
            late.start()
            with mock.patch.object(checkpoint, "_lock", return_value=True):
                self.save(2, 1, 5)
        late.join()
        self.assertEqual(self.on_disk(), (2, 1, 5))


if __name__ == "__main__":
    unittest.main()
