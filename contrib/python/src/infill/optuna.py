"""Optuna: trials that go on after a rescale, and end at once when they are pruned.

    study = infill.optuna.load_study("mlp", "mlp.journal", pruner=optuna.pruners.SuccessiveHalvingPruner())

    def objective(trial):
        net = build(trial.suggest_int("layers", 1, 4))
        for step in range(start, 100):
            loss = train(net)
            infill.optuna.report(trial, loss, step, samples=32, total=100)
        return loss

    infill.optuna.optimize(study, objective)

A study in a file or in a database is shared by all tasks of a job array, or by several jobs. A job that starts again
goes on with the trial that it has begun.
"""

from __future__ import annotations

import os
import random
import sys
import time
from functools import partial
from typing import Any, Callable, List, NoReturn, Optional, Sequence, SupportsFloat, Union

import optuna as _optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from . import _plan, _plans
from ._agreement import distributed
from ._rescale import step as _step

#: The attribute of a trial that names its job.
JOB = "infill_job"

#: The attribute of a trial with the number of its failures.
FAILURES = "infill_failures"

#: Failures after which a trial counts as failed. `infill run` starts a command again three times by default.
MOST_FAILURES = 4

#: How long a rank waits for what the first rank does, seconds.
WAIT_SECS = 600.0

#: Time between two looks at the study, seconds.
LOOK_SECS = 0.2

#: How much more a trial counts among its owner's jobs with each rung.
RUNG_FACTOR = 1.5

#: Optuna's successive halving gives a trial an attribute with this prefix for each rung that it completes.
RUNG_PREFIX = "completed_rung_"

#: How often the study is looked for in a database before an error counts, and the time between two tries, seconds.
DATABASE_TRIES = 5
DATABASE_PAUSE_SECS = 1.0

#: Looks without a further trial after which there is none.
IDLE_LOOKS = 10


def load_study(name: str, storage: Union[str, BaseStorage], **options: Any) -> _optuna.Study:
    """The study of this name, made if it is missing.

    `storage` is the path of a journal, which all nodes must see, or the URL of a database
    (`postgresql+psycopg://host/studies`). `options` are those of `optuna.create_study`, such as sampler and pruner.
    """
    if isinstance(storage, str) and "://" not in storage:
        storage = JournalStorage(JournalFileBackend(storage))
    attempt = partial(_optuna.create_study, study_name=name, storage=storage, load_if_exists=True, **options)
    return _first_success(attempt) if isinstance(storage, str) else attempt()


def optimize(
    study: _optuna.Study,
    objective: Callable[[Any], Union[float, Sequence[float]]],
    n_trials: int = 1,
    total: Optional[int] = None,
) -> None:
    """Runs trials of this job, one after the other, on all of its ranks.

    `n_trials` is the number of this job's trials: one for a task of an array. With `total`, the job goes on until the
    study has that many trials, and `n_trials` does not count. Jobs that ask at the same moment may add one each.

    On ranks other than the first, parameters and the end of a trial come from the first rank through the study.
    """
    trial: Union[Trial, _Follower, None]
    last = -1
    while True:
        if _plan.plan().rank == 0:
            begun = _own_trial(study, after=last)
            wants_one = begun is not None or _wants_more(study, n_trials, total)
            trial = _lead(study, begun) if wants_one else None
            _from_first(-1 if trial is None else trial.number)
        else:
            trial = _follow(study, last, n_trials, total)
        if trial is None:
            return
        last = trial.number
        _run(study, objective, trial)


def report(
    trial: Any,
    value: SupportsFloat,
    step: int,
    samples: SupportsFloat = 0.0,
    total: Optional[SupportsFloat] = None,
) -> None:
    """Ends a step: reports to Optuna and to infill, saves and leaves at a rescale.

    Call it at the end of each step, on all ranks. Raises `optuna.TrialPruned` on all ranks if the pruner stops the
    trial. `total` is the number of steps after which the trial ends if nobody prunes it.

    With Optuna's successive halving and Hyperband, a trial counts more among its owner's jobs with each rung that it
    has passed: by `RUNG_FACTOR`.
    """
    if _leads(trial):
        trial.report(float(value), step)
    if _is_pruned(trial):
        raise _optuna.TrialPruned()
    _step(samples, step=step, loss=value, total=total, weight=_rung_weight(trial))


def launch(
    study: _optuna.Study,
    suggest: Callable[[Trial], object],
    *command: str,
    profile_by: Sequence[str] = (),
    **flags: Union[str, int, float, bool],
) -> NoReturn:
    """In a batch script: asks for this job's trial and starts `infill run` of the command with its parameters.

    `suggest` suggests the parameters, and each becomes an argument such as `--lr=0.1`. Trials with the same values of
    `profile_by` share their measurements. The command calls `optimize`, and gets the same trial.
    """
    trial = _lead(study, _own_trial(study, after=-1))
    suggest(trial)
    families = {"profile_by": ",".join(profile_by)} if profile_by else {}
    _plans.launch(*command, *arguments(trial), plans=None, **flags, **families)


def arguments(trial: Any) -> List[str]:
    """The parameters of a trial as arguments: `--lr=0.1`."""
    return [f"--{name}={value}" for name, value in trial.params.items()]


def _first_success(attempt: Callable[[], _optuna.Study]) -> _optuna.Study:
    """The result of `attempt`, which is repeated for a few seconds.

    Optuna makes a database's tables without a lock. Of jobs that start together, some fail then.
    """
    from sqlalchemy.exc import SQLAlchemyError

    for _ in range(DATABASE_TRIES - 1):
        try:
            return attempt()
        except (SQLAlchemyError, StorageInternalError):
            time.sleep(random.uniform(0.5, 1.5) * DATABASE_PAUSE_SECS)
    return attempt()


class _Follower:
    """A trial on a rank other than the first. Its parameters are what the first rank suggested."""

    def __init__(self, study: _optuna.Study, number: int) -> None:
        self._study, self.number = study, number

    def frozen(self) -> FrozenTrial:
        """The trial as the study has it now."""
        return self._study.get_trials(deepcopy=False)[self.number]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("suggest_"):
            return getattr(self.frozen(), name)

        def suggested(parameter: str, *_: Any, **__: Any) -> Any:
            _wait(lambda: parameter in self.frozen().params or self.frozen().state.is_finished())
            if parameter not in self.frozen().params:
                raise _optuna.TrialPruned()
            return self.frozen().params[parameter]

        return suggested


def _job() -> str:
    """The job's id, in its batch script as well as in its command."""
    return os.environ.get("INFILL_JOB_ID") or os.environ.get("SLURM_JOB_ID") or f"pid {os.getpid()}"


def _own_trials(study: _optuna.Study) -> List[FrozenTrial]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.user_attrs.get(JOB) == _job()]


def _own_trial(study: _optuna.Study, after: int) -> Optional[FrozenTrial]:
    """The trial that this job has begun and not ended, if its number is higher than `after`."""
    running = (t for t in _own_trials(study) if t.state == TrialState.RUNNING and t.number > after)
    return next(running, None)


def _wants_more(study: _optuna.Study, n_trials: int, total: Optional[int]) -> bool:
    if total is not None:
        return len(study.get_trials(deepcopy=False)) < total
    ended = [trial for trial in _own_trials(study) if trial.state.is_finished()]
    return len(ended) < n_trials


def _lead(study: _optuna.Study, begun: Optional[FrozenTrial]) -> Trial:
    """The job's trial on the first rank: the one that it has begun, else a new one."""
    if begun is not None:
        return Trial(study, begun._trial_id)
    trial = study.ask()
    trial.set_user_attr(JOB, _job())
    return trial


def _follow(study: _optuna.Study, last: int, n_trials: int, total: Optional[int]) -> Optional[_Follower]:
    """The job's trial on another rank; None if the first rank begins no further one."""
    number = _from_first(-1)
    if number is not None:
        return None if number < 0 else _Follower(study, number)
    idle_looks = 0

    def is_decided() -> bool:
        nonlocal idle_looks
        idle_looks = 0 if _wants_more(study, n_trials, total) else idle_looks + 1
        # The first rank may have begun the last trial a moment ago, and not have written its name there.
        return _own_trial(study, after=last) is not None or idle_looks > IDLE_LOOKS

    _wait(is_decided)
    found = _own_trial(study, after=last)
    return None if found is None else _Follower(study, found.number)


def _run(
    study: _optuna.Study, objective: Callable[[Any], Union[float, Sequence[float]]], trial: Union[Trial, _Follower]
) -> None:
    leads = isinstance(trial, Trial)
    try:
        values = objective(trial)
    except _optuna.TrialPruned:
        if isinstance(trial, Trial):
            study.tell(trial, state=TrialState.PRUNED)
        return
    except Exception:
        # A lost peer fails the other ranks too. The job starts again then, and goes on with the trial.
        if isinstance(trial, Trial):
            failures = int(trial.user_attrs.get(FAILURES, 0)) + 1
            trial.set_user_attr(FAILURES, failures)
            if failures >= MOST_FAILURES or not _plan.active():
                study.tell(trial, state=TrialState.FAIL)
        raise
    if leads:
        study.tell(trial, values)


def _leads(trial: Any) -> bool:
    return not isinstance(trial, _Follower)


def _is_pruned(trial: Any) -> bool:
    """Whether the pruner stops the trial, by the first rank's word."""
    pruned = _leads(trial) and bool(trial.should_prune())
    word = _from_first(int(pruned))
    if word is not None:
        return word > 0
    return pruned if _leads(trial) else bool(trial.frozen().state.is_finished())


def _rung_weight(trial: Any) -> Optional[float]:
    """How much the trial counts among its owner's jobs. The first rank alone reports it."""
    if not isinstance(trial, Trial):
        return None
    attributes = trial.storage.get_trial_system_attrs(trial._trial_id)
    rungs = sum(name.startswith(RUNG_PREFIX) for name in attributes)
    return float(RUNG_FACTOR**rungs)


def _from_first(number: int) -> Optional[int]:
    """The number that the first rank has, on all ranks; None where torch.distributed is not up."""
    if not distributed():
        return None
    import torch
    import torch.distributed as dist

    word = torch.tensor([number], device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.broadcast(word, src=0)
    return int(word.item())


def _wait(is_done: Callable[[], bool]) -> None:
    """Waits for the first rank.

    Raises RuntimeError if it does nothing for ten minutes.
    """
    until = time.monotonic() + WAIT_SECS
    while not is_done():
        if time.monotonic() > until:
            raise RuntimeError(f"rank 0 of job {_job()} has begun no trial in {WAIT_SECS:.0f} s ({sys.argv[0]})")
        time.sleep(LOOK_SECS)
