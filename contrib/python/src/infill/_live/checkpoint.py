"""The checkpoint for changes that need a restart. It is written in the background, and on request."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterator, Optional

import torch

from .skeleton import Tree
from .state import copy

#: How long another process may hold the lock, seconds. Work under the lock takes a moment, but its holder may have
#: been stopped.
LOCK_SECS, LOCK_PAUSE_SECS = 10.0, 0.05

#: After this time, seconds, no process still writes a part whose name lacks its membership.
PART_SECS = 86400.0


@dataclasses.dataclass(frozen=True, order=True)
class Stamp:
    """How new a checkpoint is. A newer stamp is greater.

    Each start from a checkpoint counts one more than that checkpoint did. So a process that goes on from it is newer
    than all processes that were left behind. Membership numbers start again with each job.
    """

    begun: int
    epoch: int
    updates: int

    @staticmethod
    def of(tree: Tree) -> Stamp:
        """The stamp of a state. Every stamp is newer than a state from a version without stamps."""
        return Stamp(*(int(tree.get(field.name, 0)) for field in dataclasses.fields(Stamp)))


class Checkpoint:
    """One file that is complete at all times, and that an older checkpoint never replaces."""

    def __init__(self, path: str, every_secs: float) -> None:
        self._path, self._every_secs = path, every_secs
        self._saved_at = time.monotonic()
        self._writer: Optional[threading.Thread] = None

    def load(self) -> Optional[Tree]:
        """The last saved checkpoint; None if there is none."""
        if not os.path.exists(self._path):
            return None
        return torch.load(self._path, map_location="cpu", weights_only=True)

    def is_due(self) -> bool:
        """Whether enough time has passed since the last checkpoint for another one."""
        return time.monotonic() - self._saved_at >= self._every_secs

    def save_behind(self, tree: Tree) -> None:
        """Copies the state now and writes it while the training goes on; does nothing while another write runs."""
        if self._writer is None or not self._writer.is_alive():
            self._begin(tree, lambda: None)

    def save_for(self, tree: Tree, then: Callable[[], object]) -> None:
        """As `start`, but first waits until the last one is written. Calls `then` when the new one is on disk."""
        self._finish()
        self._begin(tree, then)

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _begin(self, tree: Tree, then: Callable[[], object]) -> None:
        self._saved_at = time.monotonic()
        # This thread must not delay the end of a process that leaves.
        self._writer = threading.Thread(target=self._write_behind, args=(copy(tree), then), daemon=True)
        self._writer.start()

    def save(self, tree: Tree) -> bool:
        """Writes now. False if a newer one exists that lacks updates of this one. Raises OSError if that fails."""
        self._finish()
        is_there = self._write(tree)
        self._saved_at = time.monotonic()
        return is_there

    def _write_behind(self, tree: Tree, then: Callable[[], object]) -> None:
        if self._write(tree):
            then()

    def _write(self, tree: Tree) -> bool:
        """Writes `tree`. Returns whether a checkpoint with all its updates then exists."""
        # Another process may be writing too: one that was given up but is alive.
        stamp = Stamp.of(tree)
        part = f"{self._path}.{stamp.begun}-{stamp.epoch}.{socket.gethostname()}.{os.getpid()}.part"
        try:
            with open(part, "wb") as file:
                torch.save(tree, file)
                file.flush()
                os.fsync(file.fileno())
            return self._replace_by(part, stamp)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)

    def _replace_by(self, part: str, stamp: Stamp) -> bool:
        with self._locked():
            while True:
                looked = time.monotonic()
                there = self._stamp_on_disk()
                if there is not None and there > stamp:
                    break
                if time.monotonic() - looked > LOCK_SECS / 2:
                    # The process or the disk was stopped: maybe no one has waited for the lock.
                    continue
                os.replace(part, self._path)
                self._remove_older_parts(stamp)
                return True
        print(
            f"infill: {self._path} stays as it is: it is of update {there.updates} in membership {there.epoch}, newer "
            f"than update {stamp.updates} in membership {stamp.epoch} of this process, which the others gave up",
            file=sys.stderr,
            flush=True,
        )
        return there.updates >= stamp.updates

    def _stamp_on_disk(self) -> Optional[Stamp]:
        """The stamp of the present checkpoint, which alone is read. None if there is no readable checkpoint."""
        if not os.path.exists(self._path):
            return None
        try:
            return Stamp.of(torch.load(self._path, map_location="cpu", weights_only=True, mmap=True))
        except Exception as error:  # Whatever is wrong with the old one, the new one is valid.
            print(f"infill: replacing {self._path}, which cannot be read: {error!s:.300}", file=sys.stderr, flush=True)
            return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the file's lock, if the file system has locks. Waits for it at most LOCK_SECS."""
        with contextlib.ExitStack() as stack:
            end = time.monotonic() + LOCK_SECS
            with contextlib.suppress(OSError):
                file = stack.enter_context(open(f"{self._path}.lock", "ab"))
                while not _lock(file.fileno()) and time.monotonic() < end:
                    time.sleep(LOCK_PAUSE_SECS)
            yield

    def _remove_older_parts(self, stamp: Stamp) -> None:
        """Removes files of processes that ended, or were given up, in the middle of writing."""
        directory, name = os.path.split(self._path)
        stamped = re.compile(re.escape(name) + r"\.([0-9]+)-([0-9]+)\..*\.part")
        with contextlib.suppress(OSError), os.scandir(directory or ".") as entries:
            for entry in entries:
                if not entry.name.startswith(f"{name}.") or not entry.name.endswith(".part"):
                    continue
                of = stamped.fullmatch(entry.name)
                with contextlib.suppress(OSError):
                    is_old = time.time() - entry.stat().st_mtime > PART_SECS
                    if (int(of[1]), int(of[2])) < (stamp.begun, stamp.epoch) if of else is_old:
                        os.unlink(entry.path)


def _lock(file: int) -> bool:
    """Whether this process has the lock now. Raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
