"""The checkpoint for what cannot be done without a restart: written in the background, and when it is asked for."""

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

#: For how long another process may hold the lock, seconds: what is done meanwhile takes a moment, but whoever does it
#: may have been stopped.
LOCK_SECS, LOCK_PAUSE_SECS = 10.0, 0.05

#: After so long, seconds, nobody writes a part any more that says not of which membership it is.
PART_SECS = 86400.0


@dataclasses.dataclass(frozen=True, order=True)
class Stamp:
    """How new a checkpoint is; a newer one is greater.

    Each start from a checkpoint counts one more than what that was of, so that whoever goes on from it is newer than
    all that were left behind. Numbers of memberships begin anew with each job.
    """

    begun: int
    epoch: int
    updates: int

    @staticmethod
    def of(tree: Tree) -> Stamp:
        """That of a state; of one that was written before there were stamps, all later ones are newer."""
        return Stamp(*(int(tree.get(field.name, 0)) for field in dataclasses.fields(Stamp)))


class Checkpoint:
    """One file, which is whole at all times, and which nothing older ever replaces."""

    def __init__(self, path: str, every_secs: float) -> None:
        self._path, self._every_secs = path, every_secs
        self._saved_at = time.monotonic()
        self._writer: Optional[threading.Thread] = None

    def load(self) -> Optional[Tree]:
        """What was saved last; None if nothing was."""
        if not os.path.exists(self._path):
            return None
        return torch.load(self._path, map_location="cpu", weights_only=True)

    def is_due(self) -> bool:
        """Whether so much time has passed since the last one that it is time for another."""
        return time.monotonic() - self._saved_at >= self._every_secs

    def save_behind(self, tree: Tree) -> None:
        """Copies now, and writes while the training goes on; nothing while the last one is being written."""
        if self._writer is None or not self._writer.is_alive():
            self._begin(tree, lambda: None)

    def save_for(self, tree: Tree, then: Callable[[], object]) -> None:
        """The same for somebody who waits for it: once the last one is written. Calls `then` when it is on disk."""
        self._finish()
        self._begin(tree, then)

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _begin(self, tree: Tree, then: Callable[[], object]) -> None:
        self._saved_at = time.monotonic()
        # It must not keep a process that leaves from its end.
        self._writer = threading.Thread(target=self._write_behind, args=(copy(tree), then), daemon=True)
        self._writer.start()

    def save(self, tree: Tree) -> bool:
        """Writes now. False if a newer one is there that lacks updates of this one. Raises OSError if that fails."""
        self._finish()
        is_there = self._write(tree)
        self._saved_at = time.monotonic()
        return is_there

    def _write_behind(self, tree: Tree, then: Callable[[], object]) -> None:
        if self._write(tree):
            then()

    def _write(self, tree: Tree) -> bool:
        """Whether a checkpoint with all updates of `tree` is there then."""
        # Another process may be writing, too: one that was given up but lives.
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
                    # This process was stopped, or the disk: nobody may have waited for the lock.
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
        """That of the present checkpoint, of which only that much is read; None if there is none that can be read."""
        if not os.path.exists(self._path):
            return None
        try:
            return Stamp.of(torch.load(self._path, map_location="cpu", weights_only=True, mmap=True))
        except Exception as error:  # Whatever is wrong with it, what is written now is not.
            print(f"infill: replacing {self._path}, which cannot be read: {error!s:.300}", file=sys.stderr, flush=True)
            return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the file, as far as the file system has locks, and for LOCK_SECS at most."""
        with contextlib.ExitStack() as stack:
            end = time.monotonic() + LOCK_SECS
            with contextlib.suppress(OSError):
                file = stack.enter_context(open(f"{self._path}.lock", "ab"))
                while not _lock(file.fileno()) and time.monotonic() < end:
                    time.sleep(LOCK_PAUSE_SECS)
            yield

    def _remove_older_parts(self, stamp: Stamp) -> None:
        """What processes left behind that ended, or were given up, in the middle of writing."""
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
    """Whether it is ours now; raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
