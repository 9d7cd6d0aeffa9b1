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
import itertools
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

import torch

from . import _children
from ._micro_batch import TRIED, MicroBatch
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
    #: batch. The factor is 0 for a rank that has nothing left to do but must take part. Its samples are the global
    #: batch's first ones, which count elsewhere.
    weight: float
    #: Whether it is the last part of this global batch, so that the optimizer steps next.
    last: bool
    #: Samples of the global batch that belong to this rank, in all its parts.
    share: int
    #: Samples of the global batch.
    batch: int
    #: How many of the samples the loss is to be the mean of: the first ones. The others are there for the shape.
    counted: int

    def sync(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        """The context of forward and backward: gradients are exchanged only with the last part, if `model` can wait."""
        if self.last or not hasattr(model, "no_sync"):
            return contextlib.nullcontext()
        return model.no_sync()  # type: ignore[no-any-return]


def split(
    batch: Sequence[int], world_size: int, rank: int, micro_batch: Optional[int] = None, pad: bool = False
) -> List[Part]:
    """The parts of `rank` in a global batch: equally many for all ranks, of at most `micro_batch` samples each.

    They have at most two sizes; with `pad`, each has `micro_batch` samples.
    """
    largest = -(-len(batch) // world_size)
    most = micro_batch or largest
    steps = -(-largest // most)
    mine = _cut(batch, world_size)[rank]
    parts = []
    for number, piece in enumerate(_pieces(mine, steps, most, pad), 1):
        weight = len(piece) * world_size / len(batch)
        # Two, where they fit: normalization over a batch refuses a single sample.
        indices = list(piece or batch[: min(2, most)])
        counted = len(indices)
        if pad:
            indices += itertools.islice(itertools.cycle(indices), most - counted)
        parts.append(Part(indices, weight, number == steps, len(mine), len(batch), counted))
    return parts


def _pieces(items: Sequence[int], pieces: int, most: int, pad: bool) -> List[Sequence[int]]:
    """Pieces of `most` items and a rest; pieces of nearly equal length if the rest would be a single item or none."""
    rest = len(items) - (pieces - 1) * most
    return [items[i * most : (i + 1) * most] for i in range(pieces)] if rest > 1 or pad else _cut(items, pieces)


def _cut(items: Sequence[int], pieces: int) -> List[Sequence[int]]:
    """Consecutive pieces whose lengths differ by at most one, the longer ones first."""
    length, longer = divmod(len(items), pieces)
    starts = [i * length + min(i, longer) for i in range(pieces + 1)]
    return [items[a:b] for a, b in zip(starts, starts[1:])]


class ElasticSampler:
    """A batch sampler whose order depends only on seed and epoch, and whose place is the same number for all ranks.

    Every epoch holds each of `size` samples once. It is cut into global batches of `global_batch` samples. Samples
    that are left at the end of the epoch are a smaller global batch. With `tail="merge"`, they belong to the global
    batch before; with `drop_last`, this epoch is without them.

    Each global batch is divided over the ranks, in micro-steps of at most `micro_batch` samples (one micro-step if it
    is not given). At each number of ranks, a rank's have at most two sizes; with `pad` each has `micro_batch` samples, of
    which the first `part.counted` count. With `micro_batch="auto"`, which needs `Elastic`, a micro-step is the
    largest that fits the device's memory: where it does not fit, it is halved.

    Rank and number of ranks come from torch.distributed, if it is initialized, else from the environment.

    Put `state_dict()` into the checkpoint. It counts the samples up to the global batch whose last part `parts` has
    handed out. So save between two steps, as `infill.step` does.

    Raises ValueError if a number is not positive, or options exclude each other.
    """

    def __init__(
        self,
        size: int,
        global_batch: int,
        micro_batch: Union[int, str, None] = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        tail: str = "short",
        pad: bool = False,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
    ) -> None:
        _check_options(size, global_batch, micro_batch, drop_last, tail, pad)
        self._size, self._global_batch = size, global_batch
        self._micro_batch = micro_batch if isinstance(micro_batch, int) else None
        #: For `micro_batch="auto"`.
        self.fitting = MicroBatch() if micro_batch == "auto" else None
        #: Whether somebody halves micro-steps that do not fit.
        self.is_led = False
        self._seed, self._shuffle, self._tail, self._pad = seed, shuffle, "drop" if drop_last else tail, pad
        self._known_order: Optional[Tuple[int, torch.Tensor]] = None
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
        whole, last = self._batches_left()
        counts = [self._steps(self._global_batch)] * min(whole, TRIED) + [self._steps(last)] * (last > 0)
        tries = sum(self._is_tried(count) for count in counts[:TRIED])
        return whole * self._steps(self._global_batch) + (self._steps(last) if last else 0) + tries

    def parts(self, loader: Iterable[_Batch]) -> Iterator[Tuple[_Batch, Part]]:
        """The rest of the epoch: each batch of `loader`, which must have this batch sampler, with its part."""
        if self.fitting:
            self.fitting.begin(self._most() or 0)
        for batch, part in zip(loader, self._left()):
            if part.last:
                self.done += part.batch
            yield batch, part
        self.epoch, self.done = self.epoch + 1, 0

    def resize(self, rank: int, world_size: int) -> None:
        """Divides the samples over other ranks from the next `parts` on."""
        self._rank, self._world_size = rank, world_size

    def state_dict(self) -> Dict[str, int]:
        """The place in the data: the same on all ranks, and valid for any number of ranks and any global batch.

        With `micro_batch="auto"` it also has what is known of the memory of this rank's device.
        """
        place = {"epoch": self.epoch, "done": self.done, "size": self._size, "seed": self._seed}
        if self.fitting and self.fitting.most:
            place["micro_batch"] = self.fitting.most
        return place

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Continues where `state` was taken.

        Raises ValueError if that was another order: another number of samples, or another seed.
        """
        if (state["size"], state["seed"]) != (self._size, self._seed):
            raise ValueError(f"{state} is not a place in an order of {self._size} samples with seed {self._seed}")
        self.epoch, self.done = state["epoch"], state["done"]
        if self.fitting and state.get("micro_batch"):
            self.fitting.limit(state["micro_batch"])

    def _order(self) -> torch.Tensor:
        """The epoch's order. Making it takes seconds where there are many samples, so it is kept."""
        if self._known_order is None or self._known_order[0] != self.epoch:
            generator = torch.Generator().manual_seed(self._seed * _EPOCHS_PER_SEED + self.epoch)
            self._known_order = self.epoch, torch.randperm(self._size, generator=generator)
        return self._known_order[1]

    def _left(self) -> Iterator[Part]:
        if self.fitting and not self.is_led:
            raise RuntimeError('micro_batch="auto" needs infill.torch.Elastic; give a number')
        order = self._order() if self._shuffle else None
        # They stay the same for the loader and for `parts`, however far one is ahead of the other.
        most, world, rank = self._most(), self._world_size, self._rank
        for number, (begin, end) in enumerate(self._batches()):
            batch = list(range(begin, end)) if order is None else order[begin:end].tolist()
            parts = split(batch, world, rank, most, self._pad)
            if number < TRIED and self._is_tried(len(parts)):
                # It tries whether this fits. Parts before the last one exchange nothing, so they can be repeated.
                yield dataclasses.replace(parts[0], weight=0.0, last=False)
            yield from parts

    def _batches_left(self) -> Tuple[int, int]:
        """Number of whole global batches that are left in the epoch, and samples of a last one of another size."""
        whole, last = divmod(self._size - self.done, self._global_batch)
        if last and self._tail == "drop":
            return whole, 0
        if last and whole and self._tail == "merge":
            return whole - 1, last + self._global_batch
        return whole, last

    def _batches(self) -> Iterator[Tuple[int, int]]:
        """Begin and end of each global batch that is left in the epoch."""
        begin = self.done
        whole, last = self._batches_left()
        for number in range(whole + (last > 0)):
            end = begin + (self._global_batch if number < whole else last)
            yield begin, end
            begin = end

    def _most(self) -> Optional[int]:
        """Most samples of a micro-step; None for no limit."""
        share = -(-self._global_batch // self._world_size)
        return self.fitting.size(share) if self.fitting else self._micro_batch

    def _steps(self, batch: int) -> int:
        share, most = -(-batch // self._world_size), self._most()
        return -(-share // most) if most else 1

    def _is_tried(self, steps: int) -> bool:
        return self.fitting is not None and steps == 1 and not self.fitting.is_proved(self._most() or 0)


def _check_options(
    size: int, global_batch: int, micro_batch: Union[int, str, None], drop_last: bool, tail: str, pad: bool
) -> None:
    if isinstance(micro_batch, str) and micro_batch != "auto":
        raise ValueError(f'expected a number, None or "auto" as micro_batch, not {micro_batch!r}')
    if min(size, global_batch, micro_batch if isinstance(micro_batch, int) else 1) < 1:
        raise ValueError(f"not positive: size {size}, global_batch {global_batch} or micro_batch {micro_batch}")
    if tail not in ("short", "merge", "drop") or drop_last and tail == "merge":
        raise ValueError(f'expected "short", "merge" or "drop" as tail, and no drop_last beside "merge", not {tail!r}')
    if (drop_last or tail == "drop") and size < global_batch:
        raise ValueError(f"without the last, short global batch, nothing is left: {size} samples, {global_batch} each")
    if pad and not micro_batch:
        raise ValueError("pad needs a micro_batch: the size that all micro-steps have")


def _place() -> Tuple[int, int]:
    """The rank of this process and the number of ranks."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return plan().rank, plan().world_size
