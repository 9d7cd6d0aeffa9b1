"""The model that the training calls: the user's network in a DistributedDataParallel that changes with the group."""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import torch_private
from .among import Among

#: Options with which DistributedDataParallel exchanges gradients in its own way.
OWN_WAYS = ("mixed_precision", "delay_all_reduce_named_params")

#: The dicts and sets in which a module keeps what it consists of.
_PARTS = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class Hook(NamedTuple):
    """A communication hook of DistributedDataParallel, as `register_comm_hook` takes it."""

    #: The hook's state, or a function that makes it.
    state: Any
    function: Callable[[Any, Any], Any]

    @staticmethod
    def of(pair: Optional[Tuple[Any, Any]]) -> Optional[Hook]:
        """Checks the pair of a user. Raises TypeError if it cannot be a hook that lasts over changes."""
        if pair is None:
            return None
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError("ddp_hook must be a pair of a state and a hook, as register_comm_hook takes them")
        if hasattr(pair[0], "maybe_increase_iter"):
            name = type(pair[0]).__name__
            raise TypeError(f"{name} counts steps, and newcomers would not: give a function that makes one instead")
        return Hook(*pair)

    def register(self, wrapped: DistributedDataParallel) -> None:
        """Registers it with a new wrapper."""
        wrapped.register_comm_hook(self.state() if callable(self.state) else self.state, self.function)


class Model(nn.Module):  # type: ignore[misc, unused-ignore]
    """The network, as a module whose forward pass exchanges gradients. It stays the same object over all changes.

    It consists of the network's own parts, by the same names, and has the network's attributes. Only its call is
    another one.
    """

    def __init__(self, net: Any, ddp: Optional[Dict[str, Any]], hook: Optional[Hook] = None) -> None:
        super().__init__()
        # These are no parts of the module: the names of parts must stay as the network has them.
        own = {"_net": net, "_ddp": ddp, "_hook": hook, "_wrapped": net, "passes": 0}
        self.__dict__.update(own, **{name: getattr(net, name) for name in _PARTS})
        del self.__dict__["training"]

    # What compiles the model compiles the network inside: this wrapper and its group are others after a change.
    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator, unused-ignore]
    def forward(self, *args: Any, **words: Any) -> Any:
        """The network's output, with gradients that are exchanged."""
        # Passes so far. It is no attribute of the network.
        self.__dict__["passes"] += 1
        return self._wrapped(*args, **words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._net, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._net, name)

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *dir(self._net)})

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        """A copy is one of the network alone, as for an average of its weights."""
        return copy.deepcopy(self._net, memo)

    def __reduce__(self) -> Any:
        return _alone, (self._net,)

    def train(self, mode: bool = True) -> Model:
        """Sets the network's mode."""
        self._net.train(mode)
        return self

    def state_dict(self, *args: Any, **words: Any) -> Any:
        """The network's own state, by its own keys."""
        return self._net.state_dict(*args, **words)

    def load_state_dict(self, *args: Any, **words: Any) -> Any:
        """Loads the network's own state."""
        return self._net.load_state_dict(*args, **words)

    @property
    def can_exchange(self) -> bool:
        """Whether `wrap` can use an `exchange`, which averages gradients in the processors' memory."""
        has_own = self._ddp is None or any(self._ddp.get(option) is not None for option in OWN_WAYS)
        on_processors = all(p.device.type == "cpu" for p in self._net.parameters())
        return not has_own and self._hook is None and on_processors

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which gradients are not exchanged yet."""
        if isinstance(self._wrapped, DistributedDataParallel):
            return self._wrapped.no_sync()  # type: ignore[no-any-return, unused-ignore]
        return contextlib.nullcontext()

    def wrap(self, exchange: Optional[Among] = None) -> None:
        """Wraps the network for the present group. If `exchange` is given, it carries all exchanges between the ranks.

        All ranks must have the same parameters already. The old wrapper cannot take the new group: its buckets follow
        from the order of its first gradients, and a newcomer's would differ.
        """
        if self._ddp is None:
            return
        self.__dict__["_wrapped"] = torch_private.make_ddp(self._net, self._ddp)
        if exchange:
            _exchange_by(exchange, self._wrapped)
        elif self._hook:
            self._hook.register(self._wrapped)

    def goes_on(self) -> None:
        """Notes that the next pass belongs to a global batch for which the ranks have exchanged buffers already."""
        if isinstance(self._wrapped, DistributedDataParallel):
            self._wrapped.require_forward_param_sync = False

    def unwrap(self) -> None:
        """Lets the group go."""
        if isinstance(self._wrapped, DistributedDataParallel):
            torch_private.let_go(self._wrapped)
        self.__dict__["_wrapped"] = self._net


def _alone(net: Any) -> Any:
    return net


def _exchange_by(among: Among, wrapped: DistributedDataParallel) -> None:
    wrapped.register_comm_hook(among, _average)
    torch_private.give_buffers_by(wrapped, among, _give_buffers)
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
            return torch_private.rebuild_buckets(self._own)
        self._has_rebuilt = self._among.elsewhere(functools.partial(_rebuild, self._own, self._wrapped()))
        return self._has_rebuilt


def _rebuild(reducer: Any, _wrapped: Any) -> bool:
    """While this runs, the wrapper cannot end: its logger would wait for the reducer."""
    return torch_private.rebuild_buckets(reducer)
