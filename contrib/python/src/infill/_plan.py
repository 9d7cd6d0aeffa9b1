"""Reads this process's place in the job from the environment."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from typing import Any, Dict, Optional, Tuple


@dataclasses.dataclass(frozen=True)
class Plan:
    """This process's place in the job. Outside infill: generation 0, on this node, ranks from the launcher."""

    #: Number of this start of the job, from 1; 0 outside infill.
    generation: int
    #: Slurm's id of the job; None outside infill.
    job: Optional[int]
    #: Generations before this one.
    rescales: int
    #: Name of the execution plan; empty outside infill.
    exec_plan: str
    #: Number of processes of the job, and the rank of this one.
    world_size: int
    rank: int
    #: The same numbers for this node.
    local_world_size: int
    local_rank: int
    #: Names of the job's nodes, in the order of their ranks.
    nodes: Tuple[str, ...]
    #: Properties of the execution plan: processes that share each layer, stages that the layers are divided into,
    #: stage of ZeRO, whether the optimizer works on the CPUs, micro-batches of a step, and whether activations are
    #: computed again.
    tp: int = 1
    pp: int = 1
    zero: int = 0
    offload: bool = False
    accumulate: int = 1
    checkpointing: bool = False

    @property
    def dp(self) -> int:
        """Replicas of the model."""
        return max(1, self.world_size // max(1, self.tp * self.pp))

    @property
    def active(self) -> bool:
        """Whether this process runs under `infill run`."""
        return self.generation > 0


def active() -> bool:
    """`plan().active`, at little cost."""
    return "INFILL_GENERATION" in os.environ


def in_step() -> bool:
    """Whether the ranks train together, step by step. INFILL_AGREE=0 says that each works for itself."""
    return os.environ.get("INFILL_AGREE", "1") != "0"


def plan() -> Plan:
    """The place that the environment names now; in a live run, the latest place of this process.

    Raises ValueError if a variable that must be a number is not one.
    """
    job = os.environ.get("INFILL_JOB_ID")
    nodes = os.environ.get("SLURM_JOB_NODELIST") if active() else None
    started = Plan(
        generation=_number("INFILL_GENERATION", 0),
        job=int(job) if job else None,
        rescales=_number("INFILL_RESCALES", 0),
        exec_plan=os.environ.get("INFILL_PLAN", ""),
        world_size=_number("WORLD_SIZE", 1),
        rank=_number("RANK", 0),
        local_world_size=_number("LOCAL_WORLD_SIZE", 1),
        local_rank=_number("LOCAL_RANK", 0),
        nodes=tuple(nodes.split(",")) if nodes else (socket.gethostname(),),
        tp=_number("INFILL_TP", 1),
        pp=_number("INFILL_PP", 1),
        zero=_number("INFILL_ZERO", 0),
        offload=_number("INFILL_OFFLOAD", 0) > 0,
        accumulate=_number("INFILL_GA", 1),
        checkpointing=_number("INFILL_GC", 0) > 0,
    )
    return dataclasses.replace(started, **_moved)


#: The values of the plan that a live run has changed.
_moved: Dict[str, Any] = {}


def move(rank: int, world_size: int, nodes: Optional[Tuple[str, ...]]) -> None:
    """Gives this process another place. The environment stays, because other threads may be reading it."""
    _moved.update(rank=rank, world_size=world_size)
    if nodes:
        _moved.update(nodes=nodes)


def rescale_signal() -> signal.Signals:
    """The signal with which the agent asks to save and exit: INFILL_SIGNAL, with or without SIG, or SIGUSR1.

    Raises KeyError if there is no signal of that name.
    """
    name = os.environ.get("INFILL_SIGNAL", "USR1").upper()
    return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]


def _number(name: str, otherwise: int) -> int:
    return int(os.environ.get(name) or otherwise)
