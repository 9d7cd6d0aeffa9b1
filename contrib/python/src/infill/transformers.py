"""Hugging Face Trainer.

    infill.transformers.fixed_batch(args, global_batch=256)
    trainer = Trainer(..., args, callbacks=[infill.transformers.InfillCallback()])
    trainer.train(resume_from_checkpoint=infill.transformers.last_checkpoint(args.output_dir))
"""

from __future__ import annotations

import glob
import os
import re
import warnings
from typing import Any, Dict, Optional, TypeVar

from transformers import TrainerCallback

from ._fixed_batch import divide
from ._progress import report
from ._rescale import RESCALE


_Args = TypeVar("_Args")


def fixed_batch(args: _Args, global_batch: int) -> _Args:
    """Makes the global batch the same at any size: a step takes the same samples, at the same learning rate.

    Changes `args`, a TrainingArguments, and returns it. `per_device_train_batch_size` becomes at most what it was, and
    `gradient_accumulation_steps` what is needed. Without this, Hugging Face's global batch, its learning rate and its
    place in the data depend on the number of ranks.

    Raises ValueError if the batch does not divide by the number of ranks, with the sizes that divide it.
    """
    settings: Any = args
    ranks = settings.world_size * max(1, settings.n_gpu)
    division = divide(global_batch, settings.per_device_train_batch_size, ranks)
    settings.per_device_train_batch_size = division.micro_batch
    settings.gradient_accumulation_steps = division.accumulate
    settings.infill_global_batch = global_batch
    return args


class InfillCallback(TrainerCallback):  # type: ignore[misc]
    """Reports progress, and on a rescale lets the trainer save a checkpoint and exits."""

    def __init__(self) -> None:
        self._loss: Optional[float] = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Optional[Any] = None, **_: Any
    ) -> None:
        """Warns of a rest that makes the last batch of an epoch depend on the number of ranks."""
        global_batch = getattr(args, "infill_global_batch", None)
        try:
            samples = len(train_dataloader.dataset)  # type: ignore[union-attr]
        except (AttributeError, TypeError):
            return
        if global_batch and samples % global_batch:
            text = f"{samples} samples do not divide by {global_batch}: the last step of each epoch depends on the size"
            warnings.warn(f"{text} of the job; leave out {samples % global_batch} samples", stacklevel=1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        """Keeps the loss for the next report."""
        self._loss = (logs or {}).get("loss", self._loss)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step boundary."""
        report(args.train_batch_size * args.gradient_accumulation_steps, state.global_step, self._loss, state.max_steps)
        if RESCALE.agreed():
            control.should_save = True
            # The evaluation would come before saving, and may take long.
            control.should_evaluate = False

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called when the checkpoint is written."""
        RESCALE.leave()


def last_checkpoint(output_dir: str) -> Optional[str]:
    """The newest complete checkpoint in the trainer's directory; None if there is none.

    A checkpoint that was being saved when the process was killed lacks the trainer's state, which is written last.
    """
    found = {}
    for path in glob.glob(os.path.join(glob.escape(output_dir), "checkpoint-*", "trainer_state.json")):
        number = re.fullmatch(r"checkpoint-(\d+)", os.path.basename(os.path.dirname(path)))
        if number:
            found[int(number[1])] = os.path.dirname(path)
    return found[max(found)] if found else None
