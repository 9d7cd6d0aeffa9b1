"""All that a newcomer needs to train on where the others are: kept, copied, and handed over without a disk."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from typing import Any, Callable, Dict, List, Tuple

import torch

from ..torch import ElasticSampler
from .among import Among

#: A tree of containers, tensors and whatever can be pickled.
Tree = Any


@dataclasses.dataclass(frozen=True)
class _Slot:
    """Stands for a tensor in a skeleton."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    device: str


class Worth(enum.Enum):
    """What a process's state is good for, as the ranks tell each other; of trained ones they tell the updates."""

    #: For training on, and for newcomers.
    TRAINED = 0
    #: For beginning a training.
    FRESH = -1
    #: For nothing: whoever gave it was lost on the way.
    SPOILED = -2


class State:
    """Model, optimizer, sampler and whatever else has `state_dict` and `load_state_dict`."""

    def __init__(self, net: Any, optimizer: Any, sampler: ElasticSampler, others: Dict[str, Any]) -> None:
        self.net, self.optimizer, self.sampler, self.others = net, optimizer, sampler, others
        #: Updates of the optimizer, over all sizes and restarts, and the sampler's place after the last one.
        self.updates, self._place = 0, sampler.state_dict()
        self.worth = Worth.FRESH

    def commit(self) -> None:
        """Notes that the global batch that is being trained has changed the model."""
        self.updates += 1
        self._place = self.sampler.state_dict()

    def back_to_commit(self) -> None:
        """Puts the sampler where the model is."""
        self.sampler.load_state_dict(self._place)

    def tree(self) -> Tree:
        """Everything; tensors are those that are trained, not copies."""
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "others": {name: other.state_dict() for name, other in self.others.items()},
            **self._place_tree(),
        }

    def _place_tree(self) -> Tree:
        random = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_initialized():
            random["cuda"] = torch.cuda.get_rng_state()
        return {"updates": self.updates, "sampler": self._place, "random": random}

    def load(self, tree: Tree) -> None:
        """Goes on from what `tree` returned in another process."""
        self.net.load_state_dict(tree["net"])
        self.optimizer.load_state_dict(tree["optimizer"])
        self._load_rest(tree)

    def _load_rest(self, tree: Tree) -> None:
        for name, other in self.others.items():
            other.load_state_dict(tree["others"][name])
        self.updates, self._place, self.worth = tree["updates"], tree["sampler"], Worth.TRAINED
        torch.set_rng_state(tree["random"]["cpu"])
        if "cuda" in tree["random"] and torch.cuda.is_initialized():
            torch.cuda.set_rng_state(tree["random"]["cuda"].cpu())

    def _load_received(self, tree: Tree) -> None:
        """The same for tensors that are nobody else's: `load_state_dict` would copy each once more."""
        if not all(torch.is_tensor(value) and value.data_ptr() in self._own() for value in tree["net"].values()):
            self.net.load_state_dict(tree["net"])
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.optimizer.state.clear()
        for number, kept in tree["optimizer"]["state"].items():
            self.optimizer.state[parameters[number]] = kept
        for group, new in zip(self.optimizer.param_groups, tree["optimizer"]["param_groups"]):
            group.update({key: value for key, value in new.items() if key != "params"})
        self._load_rest(tree)

    def _own(self) -> "set[int]":
        """Where parameters and buffers lie."""
        return {tensor.data_ptr() for tensor in (*self.net.parameters(), *self.net.buffers())}

    def bytes(self) -> int:
        """About how much there is to hand over, with an optimizer that keeps two numbers a parameter, as most do."""
        return 3 * int(sum(p.numel() * p.element_size() for p in self.net.parameters()))

    def send(self, source: int, among: Among) -> None:
        """Gives all that it is, as rank `source`, to the others. Raises RuntimeError if one of them is lost."""
        skeleton, tensors = _take_apart(self.tree())
        _send_object(skeleton, source, among)
        among.broadcast_all(tensors, source)

    def receive(self, source: int, among: Among) -> None:
        """Takes what rank `source` gives. Raises RuntimeError if it is lost; all is to be received again then."""
        skeleton = _receive_object(source, among)
        own = {name: value for name, value in self.net.state_dict().items() if torch.is_tensor(value)}
        addresses = self._own()
        tensors: List[torch.Tensor] = []

        def fill(slot: _Slot, name: str) -> torch.Tensor:
            mine = own.get(name.partition("net/")[2]) if name.startswith("net/") else None
            if mine is None or not _fits(mine, slot) or mine.data_ptr() not in addresses:
                mine = torch.empty(slot.shape, dtype=slot.dtype, device=slot.device)
            tensors.append(mine)
            return mine

        tree = _put_together(skeleton, fill)
        self.worth = Worth.SPOILED
        among.broadcast_all(tensors, source)
        self._load_received(tree)


def _fits(tensor: torch.Tensor, slot: _Slot) -> bool:
    alike = (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (slot.shape, slot.dtype, slot.device)
    return alike and tensor.is_contiguous()


def copy(tree: Tree) -> Tree:
    """The same in the processor's memory, so that training may go on."""
    skeleton, tensors = _take_apart(tree)
    copies = iter([tensor.detach().to("cpu", copy=True) for tensor in tensors])
    return _put_together(skeleton, lambda slot, name: next(copies))


def _take_apart(tree: Tree) -> Tuple[Tree, List[torch.Tensor]]:
    """The tree with slots in place of its tensors, and these, in the tree's order."""
    tensors: List[torch.Tensor] = []

    def cut(value: Any, name: str) -> Any:
        if not torch.is_tensor(value):
            return value
        tensors.append(value.detach())
        return _Slot(tuple(value.shape), value.dtype, value.device.type)

    return _map(tree, cut), tensors


def _put_together(skeleton: Tree, fill: Callable[[_Slot, str], torch.Tensor]) -> Tree:
    return _map(skeleton, lambda value, name: fill(value, name) if isinstance(value, _Slot) else value)


def _map(tree: Tree, leaf: Callable[[Any, str], Any], name: str = "") -> Tree:
    """The tree with other leaves. Each is called by its way from the root: keys with slashes between."""
    if isinstance(tree, dict):
        # An ordinary dict also where it was a state_dict's own kind: what that adds is no state.
        return {key: _map(value, leaf, f"{name}/{key}" if name else str(key)) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_map(value, leaf, f"{name}/{i}") for i, value in enumerate(tree))
    return leaf(tree, name)


def _send_object(value: Any, source: int, among: Among) -> None:
    data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    among.broadcast(torch.tensor([data.numel()]), source)
    among.broadcast(data, source)


def _receive_object(source: int, among: Among) -> Any:
    size = torch.zeros(1, dtype=torch.int64)
    among.broadcast(size, source)
    data = torch.empty(int(size), dtype=torch.uint8)
    among.broadcast(data, source)
    return pickle.loads(data.numpy().tobytes())
