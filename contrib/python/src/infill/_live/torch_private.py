"""Everything that live changes need of PyTorch beside its public interface.

A version of PyTorch may lack one of these symbols. Then a live change would fail somewhere in the middle. So the
symbols are looked up once, when this module is imported. Where one is missing, the job restarts at each change instead,
and the functions here do without it: a process that never changes its group does not need them.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

#: The names below `torch` that every live change needs.
SYMBOLS = (
    "distributed.distributed_c10d._world.group_count",
    "distributed.distributed_c10d._world.pg_map",
    "distributed.distributed_c10d.ProcessGroupGloo",
    "distributed.Reducer._rebuild_buckets",
    "distributed.Reducer._remove_autograd_hooks",
    "nn.parallel.DistributedDataParallel._register_buffer_comm_hook",
    "nn.parallel.distributed._BufferCommHookLocation.PRE_FORWARD",
)

#: The names that changes of NCCL's groups need, too.
NCCL_SYMBOLS = (
    "distributed.distributed_c10d._world.pg_names",
    "distributed.distributed_c10d._abort_process_group",
)

#: How one group of NCCL ends: the first of these names that there is.
SHUTDOWN_SYMBOLS = ("distributed.ProcessGroup.shutdown", "distributed.ProcessGroup._get_backend")


def find_missing(library: Any, with_nccl: bool) -> List[str]:
    """The symbols that `library`, a PyTorch, lacks, by their whole names."""
    needed = SYMBOLS + (NCCL_SYMBOLS if with_nccl else ())
    missing = [name for name in needed if not _has(library, name)]
    if with_nccl and not any(_has(library, name) for name in SHUTDOWN_SYMBOLS):
        missing.append(SHUTDOWN_SYMBOLS[0])
    return [f"torch.{name}" for name in missing]


def _has(library: Any, name: str) -> bool:
    for part in name.split("."):
        library = getattr(library, part, None)
    return library is not None


_MISSING = {with_nccl: find_missing(torch, with_nccl) for with_nccl in (False, True)}


def why_no_live_changes(with_nccl: bool) -> str:
    """Which symbols this version of PyTorch lacks, as the reason why the job restarts at each change; else empty."""
    missing = _MISSING[with_nccl]
    return f"PyTorch {torch.__version__} has no {', '.join(missing)}" if missing else ""


def forget_group_number() -> None:
    """Lets the next group have the number of a first one: a failed group has left its own behind."""
    if hasattr(getattr(dist.distributed_c10d, "_world", None), "group_count"):
        dist.distributed_c10d._world.group_count = 0


def forget_group_names() -> None:
    """Lets PyTorch forget its groups, so that it ends none of them."""
    dist.distributed_c10d._world.pg_names.clear()


def groups() -> List[Tuple[Any, str]]:
    """All present groups, each with the name of its backend."""
    return [(group, backend) for group, (backend, _) in list(dist.distributed_c10d._world.pg_map.items())]


def abort_all_nccl() -> None:
    """Aborts the communicators of all groups at once; one by one may deadlock. No default group is left."""
    # Without its argument, the call ends only the default group.
    dist.distributed_c10d._abort_process_group(dist.group.WORLD)


def shut_down(group: Any) -> None:
    """Ends the communicator of one group of NCCL."""
    if hasattr(group, "shutdown"):
        group.shutdown()
    else:
        # PyTorch 2.6
        group._get_backend(torch.device("cuda"))._shutdown()


class _StandIn(type):
    """The type of classes that make the objects of another class, and pass for it."""

    stands_for: type

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, cls.stands_for)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.stands_for, name)


@contextlib.contextmanager
def gloo_groups_made_by(make: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """In this context, `make` gets a call that makes each group of gloo, and returns its result."""
    c10d = dist.distributed_c10d
    gloo: Any = getattr(c10d, "ProcessGroupGloo", None)
    if gloo is None:
        yield
        return

    class Gloo(metaclass=_StandIn):
        stands_for = gloo

        def __new__(cls, *args: Any, **words: Any) -> Any:
            return make(lambda: gloo(*args, **words))

    c10d.ProcessGroupGloo = Gloo
    try:
        yield
    finally:
        c10d.ProcessGroupGloo = gloo


def make_ddp(net: Any, options: Dict[str, Any]) -> Any:
    """DistributedDataParallel without its broadcast of all parameters, and without its check that all have the same."""
    if "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters:
        return DistributedDataParallel(net, **{"init_sync": False, **options})
    names = ("_sync_module_states", "_verify_param_shape_across_processes")
    kept = {name: getattr(ddp_module, name) for name in names if hasattr(ddp_module, name)}
    vars(ddp_module).update({name: lambda *_, **__: None for name in kept})
    try:
        return DistributedDataParallel(net, **options)
    finally:
        vars(ddp_module).update(kept)


def let_go(wrapped: Any) -> None:
    """Takes the hooks off the parameters: the reducer may outlive its wrapper, and must not wait for gradients."""
    # With `delay_all_reduce_named_params`, there may be no reducer.
    if hasattr(getattr(wrapped, "reducer", None), "_remove_autograd_hooks"):
        wrapped.reducer._remove_autograd_hooks()


def give_buffers_by(wrapped: Any, state: Any, hook: Callable[[Any, Dict[str, Any]], Any]) -> None:
    """Lets `hook` give the buffers of the first rank to the others, before each pass."""
    wrapped._register_buffer_comm_hook(state, hook, ddp_module._BufferCommHookLocation.PRE_FORWARD)


def rebuild_buckets(reducer: Any) -> bool:
    """Exchanges the order of the first gradients, and whether that was done now."""
    return bool(reducer._rebuild_buckets())
