"""The objects beside model and optimizer, such as schedulers and scalers: put back when a step is repeated."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Set

import torch

from .updates import copied, options_of, restore_options

#: Larger states are not copied at each update: averaged weights, for example, which change after the update anyway.
MOST_BYTES = 1 << 20


class Others:
    """Copies of the small states, from after the last update."""

    def __init__(self, others: Dict[str, Any], optimizers: Sequence[Any]) -> None:
        for name, other in others.items():
            if isinstance(other, torch.optim.Optimizer):
                raise TypeError(
                    f"{name}: give all optimizers together, as in Elastic(net, [first, second], sampler): "
                    "as another object, an optimizer would step twice in a step that is repeated"
                )
        self._others, self._optimizers = others, optimizers
        self._kept: Dict[str, Any] = {}
        self._options: List[Any] = []
        #: Names of objects that are not copied.
        self._left_out: Set[str] = set()

    def keep(self) -> None:
        """Copies the present states, and the optimizers' options, which schedulers change."""
        self._options = [options_of(optimizer) for optimizer in self._optimizers]
        for name, other in self._others.items():
            if name not in self._left_out:
                self._keep(name, other)

    def _keep(self, name: str, other: Any) -> None:
        if _is_scaler(other):
            # Its state_dict would wait for the device.
            self._kept[name] = (copied(other._scale), copied(other._growth_tracker))
            return
        try:
            state = other.state_dict()
            if sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state)) > MOST_BYTES:
                raise ValueError("large")
            self._kept[name] = copied(state)
        except Exception:  # Whatever it is, it cannot be put back. It changes with the repeated step, as ever.
            self._left_out.add(name)
            self._kept.pop(name, None)

    def back(self) -> None:
        """Puts the objects back where they were when `keep` was called."""
        for name, kept in self._kept.items():
            other = self._others[name]
            if _is_scaler(other):
                other._scale, other._growth_tracker = copied(kept)
            else:
                other.load_state_dict(copied(kept))
        for optimizer, options in zip(self._optimizers, self._options):
            restore_options(optimizer, options)

    def forget_step(self, error: BaseException) -> None:
        """Removes what a gradient scaler has noted about the step in which `error` came, here and at the optimizers.

        The scaler would take the repeated step's gradients for those that it has divided or tested already.
        """
        scalers = [other for other in self._others.values() if _is_scaler(other)]
        for scaler in [*scalers, *_scalers_of(error)]:
            scaler._per_optimizer_states.clear()
        for optimizer in self._optimizers:
            for name in ("grad_scale", "found_inf"):
                vars(optimizer).pop(name, None)


def _is_scaler(other: Any) -> bool:
    return all(hasattr(other, name) for name in ("_per_optimizer_states", "_scale", "_growth_tracker"))


def _scalers_of(error: BaseException) -> Iterator[Any]:
    """Scalers in whose methods the error came: the program may have named none."""
    trace = error.__traceback__
    while trace:
        owner = trace.tb_frame.f_locals.get("self")
        if owner is not None and "_per_optimizer_states" in getattr(owner, "__dict__", ()):
            yield owner
        trace = trace.tb_next


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if torch.is_tensor(tree):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _tensors(value)
