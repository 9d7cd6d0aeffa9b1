"""Lets ranks agree on the step boundary at which they leave."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, List, Optional, Sequence

#: Ranks with steps shorter than this, seconds, do not agree at every step.
AGREE_SECS = 0.1

#: Most steps from one agreement to the next. If steps suddenly take a second each, an agreement comes after at most
#: this many seconds.
MAX_EVERY = 32


def distributed() -> bool:
    """Whether torch.distributed is initialized, with several ranks. Does not import it."""
    dist = sys.modules.get("torch.distributed")
    return bool(dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


class Agreement:
    """Tells all ranks at the same step boundary whether any of them was asked to leave, and the numbers they exchange.

    Every few boundaries the ranks exchange the largest of some numbers and of their step times. That maximum is the
    same for all, and it determines after how many steps they exchange again. One all-reduce every AGREE_SECS costs
    almost nothing, and no rank has to guess another one's decision.

    It has its own group, with gloo on processors. So no rank waits for its device, and the exchange is separate from
    the training's. `wait` gets that group and a function that begins a work there, and waits for the work.
    """

    def __init__(self, wait: Callable[[Any, Callable[[], Any]], object] = lambda group, begin: begin().wait()) -> None:
        import torch.distributed as dist

        self._dist, self._wait = dist, wait
        #: All ranks, on processors.
        self.group = dist.new_group(backend="gloo")
        self.wait()
        self._every, self._steps, self._since = 1, 0, time.monotonic()

    def exchange(self, numbers: Sequence[float]) -> Optional[List[float]]:
        """The largest of each number over all ranks; None at boundaries without an exchange.

        All ranks must call it the same number of times. Raises RuntimeError if a rank is lost.
        """
        self._steps += 1
        if self._steps < self._every:
            return None
        step_secs = (time.monotonic() - self._since) / self._steps
        largest = self._largest([*numbers, step_secs])
        slowest_secs = largest.pop()
        self._every = int(min(MAX_EVERY, max(1.0, AGREE_SECS / max(slowest_secs, 1e-9))))
        self._steps, self._since = 0, time.monotonic()
        return largest

    def ask(self, asked: bool) -> bool:
        """Whether any rank was asked to leave. All ranks must call it the same number of times."""
        largest = self.exchange([float(asked)])
        return bool(largest and largest[0])

    def wait(self) -> None:
        """Waits until all ranks are here."""
        self._largest([0.0])

    def _largest(self, numbers: Sequence[float]) -> List[float]:
        import torch

        exchanged = torch.tensor(numbers, dtype=torch.float64)
        how = {"op": self._dist.ReduceOp.MAX, "group": self.group, "async_op": True}
        self._wait(self.group, lambda: self._dist.all_reduce(exchanged, **how))
        largest: List[float] = exchanged.tolist()
        return largest
