"""What the training calls: the user's network, in a DistributedDataParallel that changes with the group."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Dict, Optional

from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

#: Makes gradients those of all ranks, on average: a future of them.
Average = Callable[[Any], Any]

#: Options with which DistributedDataParallel exchanges gradients in a way of its own.
OWN_WAYS = ("mixed_precision", "delay_all_reduce_named_params")


class Model:
    """Stays the same object over all changes. Parameters, `train` and `eval` are the network's own."""

    def __init__(self, net: Any, ddp: Optional[Dict[str, Any]]) -> None:
        self._net, self._ddp, self._wrapped = net, ddp, net

    def __call__(self, *args: Any, **words: Any) -> Any:
        return self._wrapped(*args, **words)

    @property
    def can_average(self) -> bool:
        """Whether `wrap` can make use of an `average`: of gradients in the processors' memory."""
        has_own = self._ddp is None or any(self._ddp.get(option) is not None for option in OWN_WAYS)
        return not has_own and all(p.device.type == "cpu" for p in self._net.parameters())

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """Where gradients are not exchanged yet."""
        if isinstance(self._wrapped, DistributedDataParallel):
            return self._wrapped.no_sync()  # type: ignore[no-any-return]
        return contextlib.nullcontext()

    def wrap(self, average: Optional[Average] = None) -> None:
        """Goes with the group that is up, and exchanges gradients by `average`, if that is given, instead of all at a time.

        All ranks must have the same parameters already. To give the old wrapper the new group does not do: its buckets
        follow from the order of its first gradients, and a newcomer's would be others.
        """
        if self._ddp is not None:
            self._wrapped = _wrap(self._net, self._ddp)
            if average:
                self._wrapped.register_comm_hook(average, _exchange)

    def unwrap(self) -> None:
        """Lets the group go."""
        self._wrapped = self._net


def _exchange(average: Average, bucket):  # type: ignore[no-untyped-def]  # PyTorch takes no annotation that is a text.
    return average(bucket.buffer())


def _wrap(net: Any, options: Dict[str, Any]) -> Any:
    """Without the wrapper's own broadcast of all parameters."""
    if "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters:
        return DistributedDataParallel(net, **{"init_sync": False, **options})
    if not hasattr(ddp_module, "_sync_module_states"):
        return DistributedDataParallel(net, **options)
    kept = ddp_module._sync_module_states
    ddp_module._sync_module_states = lambda *_, **__: None
    try:
        return DistributedDataParallel(net, **options)
    finally:
        ddp_module._sync_module_states = kept
