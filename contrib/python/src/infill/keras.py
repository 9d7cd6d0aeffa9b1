"""Keras: `model.fit(..., callbacks=[infill.keras.InfillCallback("backup", batch_size=32)])`."""

from __future__ import annotations

from typing import Any, Dict, Optional

import keras

from ._plan import plan
from ._progress import report
from ._rescale import RESCALE


class InfillCallback(keras.callbacks.BackupAndRestore):  # type: ignore[misc]
    """Reports progress; saves into `backup_dir` on a rescale and after each epoch; continues from there at the start.

    Keras begins the interrupted epoch again, with the saved weights. `batch_size` is the number of samples of this
    process in a step. The backup stays after the training: give each training a separate directory.

    The model must be built before `fit`.
    """

    def __init__(self, backup_dir: str, batch_size: int) -> None:
        # With a second copy, nothing is lost if the process is killed while it saves a checkpoint.
        super().__init__(backup_dir, double_checkpoint=True, delete_checkpoint=False)
        self._batch_size = batch_size
        self._step = 0

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """A step boundary."""
        self._step += 1
        report(self._batch_size, self._step, (logs or {}).get("loss"))
        if RESCALE.agreed():
            self._save_model()
            RESCALE.leave()

    def _save_model(self) -> None:
        if plan().rank == 0:
            super()._save_model()
