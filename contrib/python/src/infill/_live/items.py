"""Losses that are sums over items, such as tokens. Samples may have different numbers of items."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

import torch

from ..torch import Part


class Items:
    """The items of the present global batch, and gradients of the mean over all of them."""

    def __init__(self, parameters: Callable[[], Iterable[Any]], total: Callable[[float], float]) -> None:
        #: `total` gives the sum of each rank's number.
        self._parameters, self._total = parameters, total
        self._count: Any = 0
        self._divisor: Optional[Any] = None

    def reset(self) -> None:
        """Begins a new global batch."""
        self._count, self._divisor = 0, None

    def backward(self, loss: torch.Tensor, items: Any, part: Part, world: int) -> None:
        """Adds the gradient of `loss`, a sum over `items` items. Parts that count elsewhere add none.

        With the last part, the gradients that the ranks average become those of the mean over the items of all ranks
        and parts. Before, that number is not known, so they are divided by one that is near it.
        """
        if not part.weight:
            loss, items = loss * 0.0, items * 0
        self._count = self._count + items
        before = self._divisor
        if not part.last:
            if before is None:
                self._divisor = items.clamp(min=1) * world if torch.is_tensor(items) else max(items, 1) * world
            (loss / self._divisor).backward()
            return
        divisor = max(self._total(float(self._count)), 1.0) / world
        if before is not None:
            with torch.no_grad():
                for parameter in self._parameters():
                    if parameter.grad is not None:
                        parameter.grad.mul_(before / divisor)
        (loss / divisor).backward()
