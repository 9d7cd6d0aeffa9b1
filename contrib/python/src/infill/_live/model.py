"""The model that the training calls: the user's network in a DistributedDataParallel that changes with the group."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from typing import Any, Dict, Optional

from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as ddp_module

from .among import Among

#: Options with which DistributedDataParallel exchanges gradients in its own way.
OWN_WAYS = ("mixed_precision", "delay_all_reduce_named_params")


class Model:
    """Stays the same object over all changes. Parameters, `train` and `eval` are those of the network."""

    def __init__(self, net: Any, ddp: Optional[Dict[str, Any]]) -> None:
        self._net, self._ddp, self._wrapped = net, ddp, net
        #: Passes so far.
        self.passes = 0

    def __call__(self, *args: Any, **words: Any) -> Any:
        self.passes += 1
        return self._wrapped(*args, **words)

    @property
    def can_exchange(self) -> bool:
        """Whether `wrap` can use an `exchange`, which averages gradients in the processors' memory."""
        has_own = self._ddp is None or any(self._ddp.get(option) is not None for option in OWN_WAYS)
        return not has_own and all(p.device.type == "cpu" for p in self._net.parameters())

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which gradients are not exchanged yet."""
        if isinstance(self._wrapped, DistributedDataParallel):
            return self._wrapped.no_sync()  # type: ignore[no-any-return]
        return contextlib.nullcontext()

    def wrap(self, exchange: Optional[Among] = None) -> None:
        """Wraps the network for the present group. If `exchange` is given, it carries all exchanges between the ranks.

        All ranks must have the same parameters already. The old wrapper cannot take the new group: its buckets follow
        from the order of its first gradients, and a newcomer's would differ.
        """
        if self._ddp is not None:
            self._wrapped = _wrap(self._net, self._ddp)
            if exchange:
                _exchange_by(exchange, self._wrapped)

    def goes_on(self) -> None:
        """Notes that the next pass belongs to a global batch for which the ranks have exchanged buffers already."""
        if isinstance(self._wrapped, DistributedDataParallel):
            self._wrapped.require_forward_param_sync = False

    def unwrap(self) -> None:
        """Lets the group go."""
        # With `delay_all_reduce_named_params`, it may have no reducer.
        if isinstance(self._wrapped, DistributedDataParallel) and hasattr(self._wrapped, "reducer"):
            # The reducer may outlive this wrapper, and must not wait for the next one's gradients.
            self._wrapped.reducer._remove_autograd_hooks()
        self._wrapped = self._net


def _exchange_by(among: Among, wrapped: DistributedDataParallel) -> None:
    wrapped.register_comm_hook(among, _average)
    before = ddp_module._BufferCommHookLocation.PRE_FORWARD
    wrapped._register_buffer_comm_hook(among, _give_buffers, before)
    if wrapped.static_graph or not wrapped.find_unused_parameters:
        wrapped.reducer = _Reducer(wrapped, among)


def _average(among: Among, bucket):  # type: ignore[no-untyped-def]  # PyTorch takes no annotation that is a text.
    return among.average(bucket.buffer())


def _give_buffers(among: Among, buffers: Dict[str, Any]) -> None:
    among.broadcast_all(list(buffers.values()), 0)


class _Reducer:
    """The wrapper's own hook. The exchange about the order of the first gradients can be given up."""

    def __init__(self, wrapped: DistributedDataParallel, among: Among) -> None:
        self._own, self._wrapped, self._among = wrapped.reducer, weakref.ref(wrapped), among
        self._has_rebuilt = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def _rebuild_buckets(self) -> bool:
        if self._has_rebuilt:
            # It exchanges nothing more, but still checks whether all gradients of the last pass were exchanged.
            return bool(self._own._rebuild_buckets())
        self._has_rebuilt = self._among.elsewhere(functools.partial(_rebuild, self._own, self._wrapped()))
        return self._has_rebuilt


def _rebuild(reducer: Any, _wrapped: Any) -> bool:
    """While this runs, the wrapper cannot end: its logger would wait for the reducer."""
    return bool(reducer._rebuild_buckets())


def _wrap(net: Any, options: Dict[str, Any]) -> Any:
    """Leaves out the wrapper's own broadcast of all parameters, and its check that all ranks have the same."""
    if "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters:
        return DistributedDataParallel(net, **{"init_sync": False, **options})
    names = ("_sync_module_states", "_verify_param_shape_across_processes")
    kept = {name: getattr(ddp_module, name) for name in names if hasattr(ddp_module, name)}
    vars(ddp_module).update({name: lambda *_, **__: None for name in kept})
    try:
        return DistributedDataParallel(net, **options)
    finally:
        vars(ddp_module).update(kept)
