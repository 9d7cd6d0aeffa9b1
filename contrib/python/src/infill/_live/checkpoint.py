"""The checkpoint for what cannot be done without a restart: written in the background, and when it is asked for."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any, Callable, Optional

import torch

from .state import Tree, copy


class Checkpoint:
    """One file, which is whole at all times."""

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

    def save(self, tree: Tree) -> None:
        """Writes now. Raises OSError if that fails."""
        self._finish()
        self._write(tree)
        self._saved_at = time.monotonic()

    def _write_behind(self, tree: Tree, then: Callable[[], object]) -> None:
        self._write(tree)
        then()

    def _write(self, tree: Any) -> None:
        # Another process may be writing, too: one that was lost but lives.
        part = f"{self._path}.{socket.gethostname()}.{os.getpid()}.part"
        try:
            with open(part, "wb") as file:
                torch.save(tree, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise
