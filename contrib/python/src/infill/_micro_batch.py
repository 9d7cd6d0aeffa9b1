"""The largest micro-batch that fits the device's memory, found while a training runs."""

from __future__ import annotations

from typing import Optional

#: The first global batches of a size in which it is tried: the optimizer takes its memory with the first update.
TRIED = 2


class MicroBatch:
    """The size of micro-steps with `micro_batch="auto"`: which sizes did not fit, and which made updates."""

    def __init__(self) -> None:
        #: The most samples at a time; None: nothing has been too large so far.
        self.most: Optional[int] = None
        self._proved, self._trying, self._updates = 0, 0, 0

    def size(self, share: int) -> int:
        """Samples at a time for a rank with this share of a global batch."""
        return share if self.most is None else max(1, min(share, self.most))

    def is_proved(self, size: int) -> bool:
        """Whether that many samples at a time fit."""
        return size <= self._proved

    def begin(self, size: int) -> None:
        """Notes that global batches begin to be trained with at most `size` samples at a time."""
        self._trying, self._updates = size, 0

    def updated(self) -> None:
        """Notes an update."""
        self._updates += 1
        if self._updates >= TRIED:
            self._proved = max(self._proved, self._trying)

    def too_large(self, size: int) -> bool:
        """Notes that `size` samples did not fit. False if no smaller number can be tried."""
        if size <= 1:
            return False
        self.limit(size // 2)
        return True

    def limit(self, most: int) -> None:
        """Notes that more than `most` samples do not fit."""
        self.most = most if self.most is None else min(self.most, most)
        self._proved = min(self._proved, self.most)
