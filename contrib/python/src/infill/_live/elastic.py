"""The public form of a live run, with typed parameters, and micro-steps that need no rules of their own."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Iterable,
    Iterator,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
)

import torch
from torch.nn.utils import clip_grad_norm_

from ..torch import ElasticSampler, Part
from .run import Run, Step, _Batch

if TYPE_CHECKING:
    from types import TracebackType

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from .model import Model


class Elastic(Run):
    """A training whose processes stay alive while others join and leave.

    It takes the place of `init_process_group`, DistributedDataParallel and loading a checkpoint. Make it when all else
    is ready: a newcomer waits in this call while the others train on, and has their state afterwards.

    - `net`, `optimizer` and `sampler` are what is trained. `others` is anything else with `state_dict` and
      `load_state_dict`, by name, as `scheduler=…`.
    - `total` is the number of the optimizer's updates in the whole training. It tells infill when the job ends.
    - `backend` is that of torch.distributed: NCCL if the network is on a GPU, else gloo.
    - `ddp` are options of DistributedDataParallel. With None there is none, and the program exchanges gradients itself.
    - `ddp_hook` is a pair for its `register_comm_hook`, registered again at each change. In place of a state that
      counts, as PowerSGD's, give a function that makes one.
    - `clip_norm` is the largest norm of the gradients at an update of `micro`.
    - `warm` gets the model and returns a loss of some samples, for a newcomer's first, slow pass. It changes nothing.
    - `checkpoint` is the file for restarts. It is read when the training begins, and written every `checkpoint_secs`
      seconds and when the job leaves all its nodes. Without it, the function of `on_rescale` is called when the job
      leaves, and the program itself loads what that saved.
    - `timeout_secs` is for collectives whose peers are there but do not come.

    Raises RuntimeError if the job has no place for this process any more; SystemExit if it is to leave.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Union[Optimizer, Sequence[Optimizer]],
        sampler: ElasticSampler,
        *,
        total: Optional[int] = None,
        backend: Optional[str] = None,
        ddp: Optional[Mapping[str, Any]] = {},  # noqa: B006, it is never changed
        ddp_hook: Optional[Tuple[Any, Callable[..., Any]]] = None,
        clip_norm: Optional[float] = None,
        warm: Optional[Callable[[Model], Tensor]] = None,
        checkpoint: Optional[str] = None,
        checkpoint_secs: float = 600.0,
        timeout_secs: float = 1800.0,
        **others: Any,
    ) -> None:
        if total is not None and total < 1:
            raise ValueError(f"not positive: total {total}")
        self._clip_norm = clip_norm
        self._schedulers = [other for other in others.values() if _is_stepped(other)]
        scalers = [other for other in others.values() if hasattr(other, "unscale_")]
        self._scaler: Any = scalers[0] if scalers else None
        #: The batch that `batches` has given last, with its part.
        self._given: Optional[Tuple[Any, Part]] = None
        #: Of this rank's parts of the present global batch, each with its weight.
        self._loss_sum: Union[float, Tensor] = 0.0
        super().__init__(
            net,
            optimizer,
            sampler,
            others,
            backend=backend,
            ddp=None if ddp is None else dict(ddp),
            ddp_hook=ddp_hook,
            total=total,
            warm=warm,
            checkpoint=checkpoint,
            checkpoint_secs=checkpoint_secs,
            timeout_secs=timeout_secs,
        )

    @property
    def finished(self) -> bool:
        """Whether all updates of `total` have been made."""
        return self.total is not None and self.updates >= self.total

    def batches(self, loader: Iterable[_Batch], epochs: Optional[int] = None) -> Iterator[_Batch]:
        """All batches that are left, until `total` updates are made, or as many epochs. Each is for one `micro`.

        Raises ValueError if neither number is given: the training would have no end.
        """
        if self.total is None and epochs is None:
            raise ValueError("give `total` to Elastic or `epochs` to batches: the training would have no end")
        while not self.finished and (epochs is None or self._sampler.epoch < epochs):
            for batch, part in self.parts(loader):
                self._given = batch, part
                yield batch
                if self._given is not None:
                    raise RuntimeError("each batch of `batches` must be trained in `with job.micro(batch)`")
                if self.finished:
                    return

    def micro(self, batch: _Batch) -> Micro[_Batch]:
        """The context in which a batch of `batches` is trained.

        After the last micro-step of a global batch it clips the gradients, steps the optimizer and the schedulers that
        were given by name, and clears the gradients.

        Raises ValueError for another object than the one that `batches` has given last.
        """
        if self._given is None or self._given[0] is not batch:
            raise ValueError("micro() takes the batch that batches() has given last, as it is, and once")
        part, self._given = self._given[1], None
        return Micro(self, batch, part)

    def _update(self) -> None:
        scaler = self._scaler
        if self._clip_norm is not None:
            for optimizer in self._state.optimizers if scaler else ():
                scaler.unscale_(optimizer)
            clip_grad_norm_(self.model.parameters(), self._clip_norm)
        for optimizer in self._state.optimizers:
            if scaler:
                scaler.step(optimizer)
            else:
                optimizer.step()
        if scaler:
            scaler.update()
        for scheduler in self._schedulers:
            scheduler.step()
        self._state.zero_grad()


class Micro(Generic[_Batch]):
    """One micro-step: a batch of this rank, as a part of a global batch. The last one includes the update."""

    def __init__(self, job: Elastic, batch: _Batch, part: Part) -> None:
        self._job, self._step, self._has_updated = job, Step(job, part), False
        #: The batch, and what it is of the global batch.
        self.batch, self.part = batch, part

    @property
    def last(self) -> bool:
        """Whether it is the last one of its global batch, so that the update follows."""
        return self.part.last

    @property
    def done(self) -> bool:
        """Whether the global batch has changed the model."""
        return self._step.done

    @property
    def failed(self) -> bool:
        """Whether a member was lost in it. Then the global batch is done again."""
        return self._step.failed

    @property
    def loss(self) -> Optional[Tensor]:
        """The mean loss of this rank's samples in the last micro-step of a global batch; None before."""
        share = self.part.share * self._job.world / self.part.batch
        return self._job._loss_sum / share if self.last and share else None

    def backward(self, loss: Tensor, items: Any = None, **options: Any) -> None:
        """Computes the gradients of `loss`, the mean over the samples of this batch.

        It counts as much as its samples do in the global batch. Options are those of `Tensor.backward`. With `items`,
        a number of tokens or the like, `loss` is the sum over them. The gradient becomes that of the mean over all
        items of the global batch.
        """
        if items is not None:
            scaler = self._job._scaler
            self._step.backward(scaler.scale(loss) if scaler else loss, items)
            self._job._loss_sum = self._job._loss_sum + loss.detach() / max(float(items), 1.0) * self.part.weight
            return
        weighted, scaler = loss * self.part.weight, self._job._scaler
        self._job._loss_sum = self._job._loss_sum + weighted.detach()
        (scaler.scale(weighted) if scaler else weighted).backward(**options)

    def update(self) -> None:
        """Makes the update now, in the last micro-step, instead of at the end of the block.

        Raises RuntimeError in other micro-steps, and when it is called again.
        """
        if not self.last or self._has_updated:
            raise RuntimeError("the update belongs into the last micro-step of a global batch, once")
        self._has_updated = True
        self._step.loss = self.loss
        self._job._update()

    def __enter__(self) -> Micro[_Batch]:
        self._step.__enter__()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> bool:
        if kind is None and self.last and not self._has_updated:
            try:
                self.update()
            except Exception as failed:
                kind, error, trace = type(failed), failed, failed.__traceback__
        try:
            return self._step.__exit__(kind, error, trace)
        finally:
            if self.done or self.failed:
                self._job._loss_sum = 0.0


def _is_stepped(other: Any) -> bool:
    """Whether it is a scheduler that needs nothing but a call after each update."""
    kinds = torch.optim.lr_scheduler
    return isinstance(other, kinds.LRScheduler) and not isinstance(other, kinds.ReduceLROnPlateau)
