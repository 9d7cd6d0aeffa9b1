"""How ranks agree at which step boundary they leave."""

from __future__ import annotations

import sys
import time

#: Ranks with shorter steps than this agree only every so often.
AGREE_SECS = 0.1

#: Most steps from one agreement to the next: should steps suddenly last a second, so many seconds pass at most.
MAX_EVERY = 32


def distributed() -> bool:
    """Whether torch.distributed is up, with several ranks. Does not import it."""
    dist = sys.modules.get("torch.distributed")
    return bool(dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


class Agreement:
    """Tells all ranks at the same step boundary whether any of them was asked to leave.

    Every few boundaries the ranks exchange the largest of two numbers: whether they were asked, and how long their
    steps take. From the second, which is then the same for all, follows after how many steps they do it again: an
    all-reduce each AGREE_SECS costs next to nothing, and no rank ever needs to guess what another one decides.

    It has a group of its own, with gloo: on processors, so that no rank waits for its device, and apart from what the
    training exchanges.
    """

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist
        self._group = dist.new_group(backend="gloo")
        self.wait()
        self._every, self._steps, self._since = 1, 0, time.monotonic()

    def ask(self, asked: bool) -> bool:
        """Whether any rank was asked. All ranks must call it equally often."""
        import torch

        self._steps += 1
        if self._steps < self._every:
            return False
        step_secs = (time.monotonic() - self._since) / self._steps
        numbers = torch.tensor([float(asked), step_secs], dtype=torch.float64)
        self._dist.all_reduce(numbers, op=self._dist.ReduceOp.MAX, group=self._group)
        anybody, slowest_secs = numbers.tolist()
        self._every = int(min(MAX_EVERY, max(1.0, AGREE_SECS / max(slowest_secs, 1e-9))))
        self._steps, self._since = 0, time.monotonic()
        return bool(anybody)

    def wait(self) -> None:
        """Waits until all ranks are here."""
        self._dist.barrier(group=self._group)
