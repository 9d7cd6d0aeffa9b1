"""Forked children, as of a DataLoader, get the signals that mean their parent, and must stay while it saves.

The agent sends the rescale signal to every process of the job, and Slurm SIGTERM when it preempts. A worker that died
of either would take its parent down in the middle of its last step, or of saving.
"""

from __future__ import annotations

import mmap
import os
import signal

from . import _plan

#: A SIGTERM for all reaches the parent at the same time, but the parent may notice only after a call into C.
_PARENT_SECS = 1

#: One byte that children see: how far their parent is.
_parent = mmap.mmap(-1, 1)
_TRAINS, _WAS_ASKED, _HAS_SAVED = range(3)


def parent_was_asked() -> None:
    """Notes that this process was asked to leave. Safe in a signal handler."""
    _parent[0] = _WAS_ASKED


def parent_has_saved() -> None:
    """Notes that this process needs its children no longer."""
    _parent[0] = _HAS_SAVED


def spare() -> None:
    """From now on, forked children ignore the rescale signal, and SIGTERM while their parent saves."""
    os.register_at_fork(after_in_child=be_a_child)


def be_a_child() -> None:
    """Makes this process one that does so."""
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
