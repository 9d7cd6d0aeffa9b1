"""Detects steps that last suspiciously long. A peer on a node that has fallen silent sends no error."""

from __future__ import annotations

import collections
import statistics
import time
from typing import Deque, Optional

#: A step is suspicious when it lasts this many times longer than usual, but only after this many seconds.
TIMES, LEAST_SECS = 10, 5.0

#: The first steps load and tune. They are suspicious only after this many seconds.
FIRST_SECS = 120.0

#: The number of latest steps that give the usual time, and the fewest that must be known.
KNOWN, ENOUGH = 32, 4


class Watch:
    """Step times of this process. Its methods may be called on any thread."""

    def __init__(self) -> None:
        self._secs: Deque[float] = collections.deque(maxlen=KNOWN)
        self._since: Optional[float] = None
        self._is_reported = False
        self._moved_at = time.monotonic()

    def begin(self) -> None:
        """Notes that a global batch begins, or goes on."""
        if self._since is None:
            self._since, self._is_reported = time.monotonic(), False
            self._moved_at = self._since

    def end(self, counts: bool = True) -> None:
        """Notes that the batch is over. Without `counts`, its time is ignored."""
        if self._since is not None and counts:
            self._secs.append(time.monotonic() - self._since)
        self._since, self._moved_at = None, time.monotonic()

    @property
    def is_under_way(self) -> bool:
        """Whether a global batch is being trained."""
        return self._since is not None

    @property
    def usual_secs(self) -> float:
        """The usual time of a step, seconds; 0 while it is not known."""
        known = list(self._secs)
        return statistics.median(known) if known else 0.0

    def is_stuck(self, secs: float) -> bool:
        """Whether no step has begun or ended for `secs`, nor for ten usual steps."""
        return time.monotonic() - self._moved_at > max(secs, TIMES * self.usual_secs)

    def overdue(self) -> Optional[float]:
        """The duration of the present step, seconds, if it lasts too long. Returned once for each such step."""
        since, known = self._since, list(self._secs)
        if since is None or self._is_reported:
            return None
        limit = max(LEAST_SECS, TIMES * statistics.median(known)) if len(known) >= ENOUGH else FIRST_SECS
        secs = time.monotonic() - since
        if secs < limit:
            return None
        self._is_reported = True
        return secs
