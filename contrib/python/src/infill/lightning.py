"""PyTorch Lightning.

    batches = infill.lightning.FixedBatches(len(dataset), global_batch=256, micro_batch=32)
    trainer = Trainer(callbacks=[infill.lightning.InfillCallback(batches)], num_nodes=len(infill.plan().nodes),
                      accumulate_grad_batches=batches.accumulate, use_distributed_sampler=False)
    trainer.fit(module, DataLoader(dataset, batch_sampler=batches))
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, Iterator, List, Optional

import torch

from ._fixed_batch import divide
from ._plan import plan
from ._progress import report
from ._rescale import RESCALE

# Both names are in use, and a callback of one package is not a callback of the other.
if "pytorch_lightning" in sys.modules:
    from pytorch_lightning import Callback
    from pytorch_lightning.utilities.data import extract_batch_size
else:
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities.data import extract_batch_size

_CHECKPOINT = re.compile(r"hpc_ckpt_\d+\.ckpt")


#: In the checkpoint: micro-batches of a step.
_ACCUMULATE = "infill_accumulate"


class FixedBatches:
    """A batch sampler whose global batches are the same at any number of ranks, and go on where they were left.

    The order of the samples depends only on seed and epoch. What is left of an epoch after the last whole global batch
    is not used in it. Needs `accumulate_grad_batches=batches.accumulate, use_distributed_sampler=False`, and the
    callback needs it.

    Raises ValueError if the batch does not divide by the number of ranks, with the sizes that divide it.
    """

    def __init__(self, samples: int, global_batch: int, micro_batch: Optional[int] = None, seed: int = 0) -> None:
        place = plan()
        division = divide(global_batch, micro_batch, place.world_size)
        #: Samples of a micro-batch, and micro-batches of a step.
        self.micro_batch, self.accumulate = division.micro_batch, division.accumulate
        #: Steps of an epoch.
        self.steps = samples // global_batch
        if not self.steps:
            raise ValueError(f"expected at least {global_batch} samples, one global batch, not {samples}")
        self._samples, self._global_batch, self._seed = samples, global_batch, seed
        self._rank, self._world = place.rank, place.world_size
        self._epoch = self._skip = 0

    @property
    def sampler(self) -> FixedBatches:
        """What Lightning tells the epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning when an epoch begins."""
        self._epoch = epoch

    def start_at(self, epoch: int, step: int) -> None:
        """Begins with this step of this epoch."""
        self._epoch, self._skip = (epoch, step) if step < self.steps else (epoch + 1, 0)

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[List[int]]:
        skip, self._skip = self._skip, 0
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        order: List[int] = torch.randperm(self._samples, generator=generator).tolist()
        for number in range(skip * self.accumulate, len(self)):
            begin = (number * self._world + self._rank) * self.micro_batch
            yield order[begin : begin + self.micro_batch]


class InfillCallback(Callback):  # type: ignore[misc]
    """Reports progress, and on a rescale saves `hpc_ckpt_STEP.ckpt` in the trainer's `default_root_dir` and exits.

    Lightning itself finds a file of that name again, in a Slurm job, when `fit` has no `ckpt_path`. The file stays
    after the training: give each training a separate directory.

    Removes Lightning's own handlers for SIGTERM and for requeueing Slurm jobs, because infill starts the job again.
    """

    def __init__(self, batches: Optional[FixedBatches] = None) -> None:
        self._batches = batches
        self._step, self._samples = 0, 0
        self._total: Optional[float] = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Called when the ranks know each other, before Lightning takes the signals."""
        RESCALE.begin()
        batches, accumulated = self._batches, trainer.accumulate_grad_batches
        if batches and accumulated != batches.accumulate:
            expected = f"accumulate_grad_batches={batches.accumulate}, which is batches.accumulate"
            raise ValueError(f"expected {expected}, not {accumulated}")

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Notes in what unit Lightning counts."""
        checkpoint[_ACCUMULATE] = trainer.accumulate_grad_batches

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Goes on at the same step, though a step has another number of micro-batches now."""
        if self._batches is None or _ACCUMULATE not in checkpoint:
            return
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
        ready = progress["ready"]
        step = ready // checkpoint[_ACCUMULATE]
        for counter, value in progress.items():
            # Lightning counts a batch as completed only after the callbacks.
            progress[counter] = step * self._batches.accumulate - (value < ready)
        self._batches.start_at(checkpoint["epoch"], step)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Called when Lightning has taken the signals."""
        RESCALE.listen()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Called when Lightning has taken the signals, without a sanity check."""
        RESCALE.listen()
        self._step = trainer.global_step
        # With the usual sampler, an epoch has another number of steps at each size. With several optimizers, Lightning
        # counts more steps than batches.
        counts_batches = self._batches and pl_module.automatic_optimization
        total = trainer.estimated_stepping_batches if counts_batches else trainer.max_steps
        self._total = total if 0 < total < float("inf") else None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step boundary, unless gradients are being accumulated."""
        self._samples += extract_batch_size(batch)
        if trainer.global_step == self._step:
            return
        report(self._samples, trainer.global_step, _loss(outputs), self._total)
        self._step, self._samples = trainer.global_step, 0
        if RESCALE.agreed():
            self._save(trainer)
            RESCALE.leave()

    def _save(self, trainer: Any) -> None:
        root = trainer.default_root_dir
        name = f"hpc_ckpt_{trainer.global_step}.ckpt"
        # Lightning looks for numbers in file names, so a half-written file must not have one.
        part, path = os.path.join(root, "infill.part"), os.path.join(root, name)
        trainer.save_checkpoint(part)
        if trainer.is_global_zero:
            os.replace(part, path)
            for old in filter(_CHECKPOINT.fullmatch, os.listdir(root)):
                if old != name:
                    trainer.strategy.remove_checkpoint(os.path.join(root, old))


def _loss(outputs: Any) -> Optional[Any]:
    return outputs.get("loss") if isinstance(outputs, dict) else outputs
