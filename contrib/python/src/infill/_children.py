"""Keeps forked children, such as a DataLoader's, alive while their parent saves.

The agent sends the rescale signal to every process of the job, and Slurm sends SIGTERM when it preempts. Both signals
also reach the children, though they are meant for the parent. A worker that dies of one takes its parent down, in its
last step or while it saves.
"""

from __future__ import annotations

import mmap
import os
import signal

from . import _plan

#: A SIGTERM for all reaches the parent at the same time, but the parent may notice it only after a call into C.
_PARENT_SECS = 1

#: One byte that children read: the parent's state.
_parent = mmap.mmap(-1, 1)
_TRAINS, _WAS_ASKED, _HAS_SAVED = range(3)


def parent_was_asked() -> None:
    """Notes that this process was asked to leave. Safe in a signal handler."""
    _parent[0] = _WAS_ASKED


def parent_has_saved() -> None:
    """Notes that this process no longer needs its children."""
    _parent[0] = _HAS_SAVED


def spare() -> None:
    """Makes children forked from now on ignore the rescale signal, and SIGTERM while their parent saves."""
    os.register_at_fork(after_in_child=be_a_child)


def be_a_child() -> None:
    """Makes this process ignore these signals in that way."""
    if not _plan.active():
        return
    signal.signal(_plan.rescale_signal(), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_unless_parent_leaves)
    signal.signal(signal.SIGALRM, _end_unless_parent_saves)


def _end_unless_parent_leaves(*_: object) -> None:
    if _parent[0] == _HAS_SAVED:
        _end()
    signal.alarm(_PARENT_SECS)


def _end_unless_parent_saves(*_: object) -> None:
    if _parent[0] != _WAS_ASKED:
        _end()


def _end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
