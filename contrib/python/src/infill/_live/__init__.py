"""Rescales without a restart: processes stay alive while others join and leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Union

if TYPE_CHECKING:
    from ..torch import ElasticSampler
    from .run import Run


def live(
    net: Any,
    optimizer: Union[Any, Sequence[Any]],
    sampler: ElasticSampler,
    *,
    backend: Optional[str] = None,
    ddp: Optional[Mapping[str, Any]] = {},  # noqa: B006, it is never changed
    warm: Optional[Callable[[Any], Any]] = None,
    checkpoint: Optional[str] = None,
    checkpoint_secs: float = 600.0,
    timeout_secs: float = 1800.0,
    **others: Any,
) -> Run:
    """Joins the training: instead of `init_process_group`, DistributedDataParallel and loading a checkpoint.

    Call it when all else is ready. A newcomer waits in it while the others train on; afterwards it has their state.

    - `net`, `optimizer` (of torch.optim, one or several) and `sampler` are what is trained; `others` is anything else
      with `state_dict` and `load_state_dict`, as `scheduler=…`, but no optimizer. The global batch has changed the
      model when each optimizer has made its step.
    - `backend` is that of torch.distributed: NCCL if the network is on a GPU, else gloo.
    - `ddp` are options of DistributedDataParallel; None: there is none, and the program exchanges gradients itself.
    - `warm` gets the model and returns a loss of some samples, for a newcomer's first, slow pass. It changes nothing.
    - `checkpoint` is the file for whatever needs a restart: read when the training begins, written every
      `checkpoint_secs` seconds while the training goes on, and when the job leaves all its nodes. Without it, what was
      registered with `on_rescale` is called when the job leaves, and the program itself loads what that saved.
    - `timeout_secs` is for steps in which a process is there but does not come: it is given up then.

    Raises RuntimeError if the job has no place for this process any more; SystemExit if it is to leave.
    """
    from .run import Run

    return Run(
        net,
        optimizer,
        sampler,
        others,
        backend=backend,
        ddp=None if ddp is None else dict(ddp),
        warm=warm,
        checkpoint=checkpoint,
        checkpoint_secs=checkpoint_secs,
        timeout_secs=timeout_secs,
    )
