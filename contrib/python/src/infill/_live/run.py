"""The objects of a live run that the training program uses."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import traceback
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, SupportsFloat, Tuple, TypeVar, Union

import torch

from .. import _plan
from .._progress import report
from .._rescale import RESCALE
from ..torch import ElasticSampler, Part
from . import group, torch_private
from .among import synchronize
from .changes import Changes
from .checkpoint import Checkpoint
from .control import connect
from .items import Items
from .model import Hook, Model
from .state import State, device_of_net
from .suited import OutOfMemory, check_micro_batch, check_updates

_Batch = TypeVar("_Batch")


class Run:
    """A training that changes its size while it lives. `infill.torch.Elastic` documents the parameters."""

    def __init__(
        self,
        net: Any,
        optimizer: Union[Any, Sequence[Any]],
        sampler: ElasticSampler,
        others: Dict[str, Any],
        *,
        backend: Optional[str],
        ddp: Optional[Dict[str, Any]],
        ddp_hook: Optional[Tuple[Any, Any]],
        total: Optional[int],
        warm: Optional[Callable[[Any], Any]],
        checkpoint: Optional[str],
        checkpoint_secs: float,
        timeout_secs: float,
    ) -> None:
        check_updates(net)
        check_micro_batch(net, sampler)
        self._net, self._sampler = net, sampler
        sampler.is_led = True
        self._device = device_of_net(net)
        timeout = datetime.timedelta(seconds=timeout_secs)
        backend = backend or ("nccl" if self._device.type == "cuda" else "gloo")
        transport = group.Transport(backend, self._device, timeout)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        #: Updates of the optimizer in the whole training, if it is known.
        self.total = total
        #: Use this instead of the network where gradients are needed: forward passes go through it.
        self.model = Model(net, ddp, Hook.of(ddp_hook))
        self._state = State(net, optimizer, sampler, others)
        file = Checkpoint(checkpoint, checkpoint_secs) if checkpoint else None
        if _plan.active() and not file and not RESCALE.save:
            print("infill: without a checkpoint, a restart begins the training again", file=sys.stderr, flush=True)
        # State that other processes could not take over would make each change fail, and the first change is the
        # beginning.
        rest = ""
        if _plan.active():
            rest = torch_private.why_no_live_changes(transport.is_nccl) or self._state.inexpressible()
        if rest:
            print(f"infill: each change of size is a restart: {rest}", file=sys.stderr, flush=True)
        control = None if rest else connect()
        if control and transport.is_nccl:
            # Without an agent, only PyTorch's own watchdog ends a collective that hangs.
            for name, value in group.NCCL_ENVIRONMENT.items():
                os.environ.setdefault(name, value)
        if control:
            group.warm_up(backend, lambda: self._warm(net, warm))
        self._changes = Changes(self._state, self.model, control, file, transport)
        self._step: Optional[Step] = None
        self._items = Items(net.parameters, self._changes.total)
        #: Numbers that `parts` compares: how often a global batch began again without a change of the group, and the
        #: passes through the model before the present one.
        self._begun_again, self._passes = 0, 0
        self._checked = 0
        for each in self._state.optimizers:
            each.register_step_pre_hook(self._before_update)
            each.register_step_post_hook(self._after_update)
        self._changes.join()

    @property
    def rank(self) -> int:
        """This process's present number, from 0."""
        return self._changes.rank

    @property
    def world(self) -> int:
        """The present number of processes."""
        return self._changes.world

    @property
    def epoch(self) -> int:
        """Number of the present membership; 0 is the one that the environment names. It is not the sampler's epoch."""
        return self._changes.epoch

    @property
    def updates(self) -> int:
        """Updates of the optimizer so far, over all sizes and restarts. All ranks have the same number."""
        return self._state.updates

    def parts(self, loader: Iterable[_Batch]) -> Iterator[Tuple[_Batch, Part]]:
        """The rest of the sampler's epoch, in the form of `ElasticSampler.parts`, also across changes of size."""
        epoch = self._sampler.epoch
        while self._sampler.epoch == epoch:
            place = self._place()
            for batch, part in self._sampler.parts(loader):
                yield batch, part
                if self._place() != place:
                    # The loader's next batches were cut for another size, or the place is another one.
                    break

    def _place(self) -> Tuple[int, int]:
        return self._changes.formed, self._begun_again

    def step(self, part: Part) -> Step:
        """The context of forward, backward and, with the last part, the update."""
        return Step(self, part)

    def save(self) -> None:
        """Writes the checkpoint now, for all ranks to call between two steps. Raises OSError if that fails."""
        if self.rank == 0:
            self._changes.save()

    def close(self) -> None:
        """Waits for all ranks and ends their connections. All ranks must call it after the last step."""
        self._changes.close()

    def _warm(self, net: Any, warm: Optional[Callable[[Any], Any]]) -> None:
        """Does the work of a first step, without a trace in the trained state."""
        for optimizer in self._state.optimizers:
            # Some optimizers cannot be made from their defaults; nothing is lost.
            with contextlib.suppress(Exception):
                one = torch.nn.Parameter(torch.zeros(1, device=self._device))
                one.grad = torch.zeros_like(one)
                type(optimizer)([one], **optimizer.defaults).step()
        if not warm:
            return
        buffers = [buffer.clone() for buffer in net.buffers()]
        with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            self.model.wrap()
            warm(self.model).backward()
            self.model.unwrap()
        self._state.zero_grad()
        with torch.no_grad():
            for buffer, before in zip(net.buffers(), buffers):
                buffer.copy_(before)

    def _before_update(self, optimizer: Any, *_: object) -> None:
        if self._step is None or not self._step.part.last:
            raise RuntimeError("optimizer.step() belongs into `with run.step(part)`, when part.last is true")
        if self._step.done:
            return
        are_known = self._state.update.begin(optimizer)
        if self._device.type == "cuda" and not are_known:
            self._check_gradients()

    def _check_gradients(self) -> None:
        """Raises RuntimeError if they are nonsense. On a GPU, those of an aborted group are, without an error."""
        synchronize(self._device)
        if not self._changes.is_sound:
            raise RuntimeError("a member was lost in this step")

    def _begins_batch(self) -> None:
        """Notes that the next part is the first of a global batch."""
        self._items.reset()
        self._passes = self.model.passes

    def _halves(self, error: BaseException, part: Part) -> bool:
        """Whether the global batch begins again, here alone and in smaller parts, because `part` was too large."""
        fitting = self._sampler.fitting
        if not fitting or not isinstance(error, OutOfMemory) or not fitting.too_large(len(part.indices)):
            return False
        if part.last or not self._changes.is_sound:
            # The ranks exchange gradients, so all must begin again: as after a loss.
            return False
        print(
            f"infill: {len(part.indices)} samples at a time do not fit the device's memory; trying {fitting.most}",
            file=sys.stderr,
            flush=True,
        )
        self._state.undo(error)
        self._state.back_to_commit()
        # The failed pass's tensors fill the memory.
        traceback.clear_frames(error.__traceback__)
        self._state.zero_grad()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if self.model.passes != self._passes:
            self.model.goes_on()
        self._items.reset()
        self._begun_again += 1
        return True

    def _after_update(self, optimizer: Any, *_: object) -> None:
        if self._step and not self._step.done and self._state.update.end(optimizer):
            self._step.done = True
            self._changes.committed()


class Step:
    """One part of a global batch. The last part includes the update and its consequences."""

    def __init__(self, run: Run, part: Part) -> None:
        self._run, self.part = run, part
        #: Whether the global batch has changed the model. It is never true before the last part.
        self.done = False
        #: Whether a member was lost in it. Then the global batch is done again, or was already done where this rank
        #: is now.
        self.failed = False
        #: The job's present loss, if it is set inside the block.
        self.loss: Optional[SupportsFloat] = None

    def backward(self, loss: torch.Tensor, items: Any) -> None:
        """Backward of a loss that is the sum over `items` items, such as tokens, instead of a mean over samples.

        The gradient becomes that of the mean over all items of the global batch, on all ranks. Call it once for each
        part, without `part.weight`. All ranks exchange their numbers with the last part. `items` may be a tensor.
        """
        self._run._items.backward(loss, items, self.part, self._run.world)

    def __enter__(self) -> Step:
        run = self._run
        if run._changes.formed != run._checked:
            check_updates(run._net)
            run._checked = run._changes.formed
            run._begins_batch()
        run._changes.watch.begin()
        run._step = self
        self._sync = self.part.sync(run.model)
        self._sync.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        """The end of a step, where the membership changes. `parts` repeats a step that failed for a lost member."""
        run = self._run
        self._sync.__exit__(kind, error, trace)
        try:
            if kind is None:
                self._end()
        except Exception as failed:
            error = failed
        finally:
            run._step = None
        if error is None:
            return False
        if isinstance(error, Exception):
            self.failed = True
            if not run._halves(error, self.part):
                run._changes.recover(error)
        return isinstance(error, Exception)

    def _end(self) -> None:
        if not self.part.last:
            return
        run = self._run
        if not self.done:
            # The update was left out on all ranks, as by a gradient scaler: perhaps for gradients that are nonsense.
            run._check_gradients()
            self.done = True
            run._changes.committed()
        run._state.keep()
        run._begins_batch()
        if run._sampler.fitting:
            run._sampler.fitting.updated()
        report(self.part.share, run.updates, self.loss, run.total)
        run._changes.boundary()
        run._changes.watch.end()
