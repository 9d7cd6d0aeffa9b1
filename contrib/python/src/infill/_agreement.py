"""How ranks agree at which step boundary they leave."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, List, Optional, Sequence

#: Ranks with shorter steps than this agree only every so often.
AGREE_SECS = 0.1

#: Most steps from one agreement to the next: should steps suddenly last a second, so many seconds pass at most.
MAX_EVERY = 32


def distributed() -> bool:
    """Whether torch.distributed is up, with several ranks. Does not import it."""
    dist = sys.modules.get("torch.distributed")
    return bool(dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


class Agreement:
    """Tells all ranks at the same step boundary whether any of them was asked to leave, and what else they exchange.

    Every few boundaries the ranks exchange the largest of some numbers and of how long their steps take. From the
    latter, which is then the same for all, follows after how many steps they do it again: an all-reduce each AGREE_SECS
    costs next to nothing, and no rank ever needs to guess what another one decides.

    It has a group of its own, with gloo: on processors, so that no rank waits for its device, and apart from what the
    training exchanges. `wait` is called with that group and what begins a work there, and waits for it.
    """

    def __init__(self, wait: Callable[[Any, Callable[[], Any]], object] = lambda group, begin: begin().wait()) -> None:
        import torch.distributed as dist

        self._dist, self._wait = dist, wait
        #: All ranks, on processors.
        self.group = dist.new_group(backend="gloo")
        self.wait()
        self._every, self._steps, self._since = 1, 0, time.monotonic()

    def exchange(self, numbers: Sequence[float]) -> Optional[List[float]]:
        """The largest of each number over all ranks; None at the boundaries at which nothing is exchanged.

        All ranks must call it equally often. Raises RuntimeError if a rank is lost.
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
        """Whether any rank was asked. All ranks must call it equally often."""
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
