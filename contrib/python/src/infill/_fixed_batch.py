"""Divides a global batch so that it stays the same at any number of ranks."""

from __future__ import annotations

import dataclasses
from typing import List, Optional

from ._plan import plan

#: Most numbers of nodes that an error names.
_MOST_NAMED = 12


@dataclasses.dataclass(frozen=True)
class Division:
    """A rank's share of a global batch: a number of equal micro-batches."""

    micro_batch: int
    accumulate: int


def divide(global_batch: int, micro_batch: Optional[int], ranks: int) -> Division:
    """Divides it equally, in the largest micro-batches of at most `micro_batch` samples (None: any number).

    Raises ValueError if the batch does not divide by the ranks, with the numbers of nodes that divide it.
    """
    if global_batch < 1 or (micro_batch is not None and micro_batch < 1):
        raise ValueError(f"expected batches of at least one sample, not {global_batch} and {micro_batch}")
    share, rest = divmod(global_batch, ranks)
    if rest:
        by = plan().local_world_size if plan().active else 1
        sizes = ",".join(map(str, _numbers(global_batch, by))) or "none"
        ask = f"submit with --comment=infill:nodes={sizes}" if plan().active else f"possible numbers: {sizes}"
        raise ValueError(f"a global batch of {global_batch} does not divide by {ranks} ranks; {ask}")
    largest = max(size for size in range(1, min(share, micro_batch or share) + 1) if share % size == 0)
    return Division(largest, share // largest)


def _numbers(global_batch: int, ranks_each: int) -> List[int]:
    """The numbers of nodes at which the batch divides."""
    return [n for n in range(1, global_batch + 1) if global_batch % (n * ranks_each) == 0][:_MOST_NAMED]
