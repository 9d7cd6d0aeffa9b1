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

#: One byte that children see: whether their parent was asked to leave.
_parent_asked = mmap.mmap(-1, 1)


def parent_asked() -> None:
    """Notes that this process was asked to leave. Safe in a signal handler."""
    _parent_asked[0] = 1


def spare() -> None:
    """From now on, forked children ignore the rescale signal, and SIGTERM if their parent was asked to leave too."""
    if _plan.active():
        os.register_at_fork(after_in_child=_be_a_child)


def _be_a_child() -> None:
    signal.signal(_plan.rescale_signal(), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_later)
    signal.signal(signal.SIGALRM, _end_unless_parent_asked)


def _end_later(*_: object) -> None:
    signal.alarm(_PARENT_SECS)


def _end_unless_parent_asked(*_: object) -> None:
    if not _parent_asked[0]:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
