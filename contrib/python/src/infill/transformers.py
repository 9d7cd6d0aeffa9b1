"""Hugging Face Trainer.

    trainer = Trainer(..., callbacks=[infill.transformers.InfillCallback()])
    trainer.train(resume_from_checkpoint=infill.transformers.last_checkpoint(args.output_dir))
"""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Dict, Optional

from transformers import TrainerCallback

from ._progress import report
from ._rescale import RESCALE


class InfillCallback(TrainerCallback):  # type: ignore[misc]
    """Reports progress, and on a rescale lets the trainer save a checkpoint and exits."""

    def __init__(self) -> None:
        self._loss: Optional[float] = None

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
