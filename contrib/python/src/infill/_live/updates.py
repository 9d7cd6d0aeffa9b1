"""The update of a global batch: by one optimizer or several, and either whole or not at all."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Dict, List, Sequence, Set

import torch


class Updates:
    """The optimizers that have made their step in the present global batch.

    Some programs compute gradients between the steps of two optimizers, such as those of adversarial networks. If a
    member is lost there, the steps made so far are undone with copies. A program that did so once does it again, so
    only such programs pay for copies.
    """

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._optimizers = list(optimizers)
        self._made: Set[int] = set()
        self._before: List[_Before] = []
        self._versions: List[Any] = []
        self._needs_copies = False

    def begin(self, optimizer: Any) -> bool:
        """Notes that `optimizer` is about to step.

        Returns whether it uses gradients that another optimizer's step in the same batch has found to be right.
        """
        is_known = bool(self._made) and self._versions == self._gradients()
        if self._made and not is_known:
            self._needs_copies = True
        is_last = len(self._made | {id(optimizer)}) == len(self._optimizers)
        if self._needs_copies and not is_last and id(optimizer) not in self._made:
            self._before.append(_Before.of(optimizer))
        return is_known

    def end(self, optimizer: Any) -> bool:
        """Notes that `optimizer` has stepped. Returns whether all have."""
        self._made.add(id(optimizer))
        is_whole = len(self._made) == len(self._optimizers)
        if not is_whole:
            self._versions = self._gradients()
        return is_whole

    def commit(self) -> None:
        """Begins a new global batch."""
        self._made, self._before, self._versions = set(), [], []

    def undo(self) -> bool:
        """Undoes the steps of an update that is not whole. Returns whether the state is again that of before it."""
        for before in self._before:
            before.restore()
        is_undone = self._made <= {id(before.optimizer) for before in self._before}
        self.commit()
        return is_undone

    def _gradients(self) -> List[Any]:
        """Changes whenever something writes to a gradient of an optimizer that is still to step."""
        left = [optimizer for optimizer in self._optimizers if id(optimizer) not in self._made]
        return [(id(p), id(p.grad), p.grad._version) for p in _parameters(left) if p.grad is not None]


@dataclasses.dataclass(frozen=True)
class _Before:
    """What an optimizer changes, as it was before its step."""

    optimizer: Any
    values: List[torch.Tensor]
    state: Dict[Any, Any]
    options: List[Dict[str, Any]]

    @classmethod
    def of(cls, optimizer: Any) -> _Before:
        """Copies the present state."""
        values = [p.detach().clone() for p in _parameters([optimizer])]
        state = {p: copied(kept) for p, kept in optimizer.state.items()}
        return cls(optimizer, values, state, options_of(optimizer))

    def restore(self) -> None:
        """Puts everything back."""
        with torch.no_grad():
            for parameter, value in zip(_parameters([self.optimizer]), self.values):
                parameter.copy_(value)
        self.optimizer.state.clear()
        self.optimizer.state.update(self.state)
        restore_options(self.optimizer, self.options)


def options_of(optimizer: Any) -> List[Dict[str, Any]]:
    """Copies of the optimizer's options, such as its learning rates."""
    groups = optimizer.param_groups
    return [{key: copied(value) for key, value in group.items() if key != "params"} for group in groups]


def restore_options(optimizer: Any, options: List[Dict[str, Any]]) -> None:
    """Puts the result of `options_of` back."""
    for group, kept in zip(optimizer.param_groups, options):
        group.update(copied(kept))


def _parameters(optimizers: Sequence[Any]) -> List[Any]:
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


def copied(tree: Any) -> Any:
    """A copy of a state. Its tensors are copied on their devices."""
    if torch.is_tensor(tree):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(copied(value) for value in tree)
    if isinstance(tree, (int, float, str, type(None))):
        return tree
    try:
        return copy.deepcopy(tree)
    except Exception:  # What cannot be copied is hardly state.
        return tree
