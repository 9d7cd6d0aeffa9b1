"""Trainings that change their size: no sample is skipped or repeated, and the global batch stays the same.

With `Elastic`, processes stay alive while others join and leave:

    sampler = ElasticSampler(len(dataset), global_batch=256, micro_batch=32)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4, worker_init_fn=spare_worker)
    job = Elastic(net, optimizer, sampler, scheduler=scheduler, total=10_000, checkpoint="train.pt")
    for batch in job.batches(loader):
        with job.micro(batch) as micro:
            x, y = batch
            micro.backward(criterion(job.model(x), y))
    job.close()

With the sampler alone, a training restarts at each change:

    sampler = ElasticSampler(len(dataset), global_batch=256, micro_batch=32)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4, worker_init_fn=spare_worker)
    while sampler.epoch < epochs:
        for (x, y), part in sampler.parts(loader):
            with part.sync(model):
                (criterion(model(x), y) * part.weight).backward()
            if part.last:
                optimizer.step()
                optimizer.zero_grad()
                infill.step(samples=part.share)
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

import torch

from . import _children
from ._plan import Plan, plan
from ._plans import PlanSpec

if TYPE_CHECKING:
    from ._live.elastic import Elastic, Micro
    from ._live.model import Model
    from ._live.run import Step

__all__ = ["Elastic", "ElasticSampler", "Micro", "Model", "Part", "Plan", "PlanSpec", "Step", "spare_worker", "split"]

_Batch = TypeVar("_Batch")

#: The modules of classes that are imported when they are first used: they build on this one.
_LATER = {"Elastic": "elastic", "Micro": "elastic", "Model": "model", "Step": "run"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__package__}._live.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def spare_worker(worker: int) -> None:
    """For `DataLoader(worker_init_fn=infill.torch.spare_worker)`: keeps the worker alive until its parent has saved.

    Without it, a worker ends when Slurm preempts the job, and its parent with it: PyTorch's workers handle SIGTERM in
    their own way. Workers that are not forked need it for the rescale signal too.
    """
    _children.be_a_child()


#: Distance of the seeds of two trainings' random orders: more epochs than any training has.
_EPOCHS_PER_SEED = 1_000_003


@dataclasses.dataclass(frozen=True)
class Part:
    """The work of one rank in one micro-step: a part of its share of a global batch."""

    #: Indices of the samples.
    indices: List[int]
    #: Factor for the mean loss of these samples. With it, DistributedDataParallel leaves the gradient of the mean
    #: loss over the global batch after the last part. This also holds when the number of ranks does not divide the
    #: batch. The factor is 0 for a rank that has nothing left to do but must take part. Its sample is the global
    #: batch's first, which counts elsewhere.
    weight: float
    #: Whether it is the last part of this global batch, so that the optimizer steps next.
    last: bool
    #: Samples of the global batch that belong to this rank, in all its parts.
    share: int
    #: Samples of the global batch.
    batch: int

    def sync(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        """The context of forward and backward: gradients are exchanged only with the last part, if `model` can wait."""
        if self.last or not hasattr(model, "no_sync"):
            return contextlib.nullcontext()
        return model.no_sync()  # type: ignore[no-any-return]


def split(batch: Sequence[int], world_size: int, rank: int, micro_batch: Optional[int] = None) -> List[Part]:
    """The parts of `rank` in a global batch: equally many for all ranks, of at most `micro_batch` samples each."""
    largest = -(-len(batch) // world_size)
    steps = -(-largest // micro_batch) if micro_batch else 1
    mine = _cut(batch, world_size)[rank]
    parts = []
    for number, piece in enumerate(_cut(mine, steps), 1):
        weight = len(piece) * world_size / len(batch)
        parts.append(Part(list(piece or batch[:1]), weight, number == steps, len(mine), len(batch)))
    return parts


def _cut(items: Sequence[int], pieces: int) -> List[Sequence[int]]:
    """Consecutive pieces whose lengths differ by at most one, the longer ones first."""
    length, longer = divmod(len(items), pieces)
    starts = [i * length + min(i, longer) for i in range(pieces + 1)]
    return [items[a:b] for a, b in zip(starts, starts[1:])]


class ElasticSampler:
    """A batch sampler whose order depends only on seed and epoch, and whose place is the same number for all ranks.

    Every epoch holds each of `size` samples once. It is cut into global batches of `global_batch` samples; the last
    one may be smaller. Each global batch is divided over the ranks, in micro-steps of at most `micro_batch` samples
    (one micro-step if it is not given). Rank and number of ranks come from torch.distributed, if it is initialized,
    else from the environment.

    Put `state_dict()` into the checkpoint. It counts the samples up to the global batch whose last part `parts` has
    handed out. So save between two steps, as `infill.step` does.

    Raises ValueError if a number is not positive.
    """

    def __init__(
        self,
        size: int,
        global_batch: int,
        micro_batch: Optional[int] = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
    ) -> None:
        if min(size, global_batch, micro_batch or 1) < 1:
            raise ValueError(f"not positive: size {size}, global_batch {global_batch} or micro_batch {micro_batch}")
        self._size, self._global_batch, self._micro_batch = size, global_batch, micro_batch
        self._seed, self._shuffle = seed, shuffle
        here, ranks = _place()
        self._rank = here if rank is None else rank
        self._world_size = ranks if world_size is None else world_size
        #: The present epoch, from 0, and the samples of it that all ranks together have done.
        self.epoch, self.done = 0, 0

    def __iter__(self) -> Iterator[List[int]]:
        """Indices of this rank's micro-steps in the rest of the epoch, in the form that a DataLoader expects."""
        return (part.indices for part in self._left())

    def __len__(self) -> int:
        """Number of this rank's micro-steps in the rest of the epoch."""
        whole, rest = divmod(self._size - self.done, self._global_batch)
        steps = [len(split(range(n), self._world_size, 0, self._micro_batch)) for n in (self._global_batch, rest) if n]
        return whole * steps[0] + sum(steps[1:])

    def parts(self, loader: Iterable[_Batch]) -> Iterator[Tuple[_Batch, Part]]:
        """The rest of the epoch: each batch of `loader`, which must have this batch sampler, with its part."""
        for batch, part in zip(loader, self._left()):
            if part.last:
                self.done += part.batch
            yield batch, part
        self.epoch, self.done = self.epoch + 1, 0

    def resize(self, rank: int, world_size: int) -> None:
        """Divides the samples over other ranks from the next `parts` on."""
        self._rank, self._world_size = rank, world_size

    def state_dict(self) -> Dict[str, int]:
        """The place in the data: the same on all ranks, and valid for any number of ranks and any global batch."""
        return {"epoch": self.epoch, "done": self.done, "size": self._size, "seed": self._seed}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Continues where `state` was taken.

        Raises ValueError if that was another order: another number of samples, or another seed.
        """
        if (state["size"], state["seed"]) != (self._size, self._seed):
            raise ValueError(f"{state} is not a place in an order of {self._size} samples with seed {self._seed}")
        self.epoch, self.done = state["epoch"], state["done"]

    def _order(self) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._size)
        generator = torch.Generator().manual_seed(self._seed * _EPOCHS_PER_SEED + self.epoch)
        return torch.randperm(self._size, generator=generator)

    def _left(self) -> Iterator[Part]:
        order = self._order()
        for begin in range(self.done, self._size, self._global_batch):
            batch = order[begin : begin + self._global_batch].tolist()
            yield from split(batch, self._world_size, self._rank, self._micro_batch)


def _place() -> Tuple[int, int]:
    """The rank of this process and the number of ranks."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return plan().rank, plan().world_size
