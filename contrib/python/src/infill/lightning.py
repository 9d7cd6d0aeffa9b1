"""PyTorch Lightning: `Trainer(callbacks=[infill.lightning.InfillCallback()], num_nodes=len(infill.plan().nodes))`."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Optional

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


class InfillCallback(Callback):  # type: ignore[misc]
    """Reports progress, and on a rescale saves `hpc_ckpt_STEP.ckpt` in the trainer's `default_root_dir` and exits.

    Lightning itself finds a file of that name again, in a Slurm job, when `fit` has no `ckpt_path`. The file stays
    after the training: give each training a separate directory.

    Removes Lightning's own handlers for SIGTERM and for requeueing Slurm jobs, because infill starts the job again.
    """

    def __init__(self) -> None:
        self._step, self._samples = 0, 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Called when the ranks know each other, before Lightning takes the signals."""
        RESCALE.begin()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Called when Lightning has taken the signals."""
        RESCALE.listen()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Called when Lightning has taken the signals, without a sanity check."""
        RESCALE.listen()
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step boundary, unless gradients are being accumulated."""
        self._samples += extract_batch_size(batch)
        if trainer.global_step == self._step:
            return
        report(self._samples, trainer.global_step, _loss(outputs))
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
