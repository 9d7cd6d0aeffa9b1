"""The state that a newcomer needs to continue where the others are. Kept, copied, and handed over without a disk."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple, Union

import torch

from ..torch import ElasticSampler
from . import skeleton
from .among import Among
from .keys import TAG_BYTES, Keys
from .others import Others
from .skeleton import Same, Slot, Tree
from .updates import Updates

#: The header of a process's state. It changes with the format.
MAGIC = b"infill state 2\n"

#: Longest description of a state that is read, bytes: a million tensors fit.
MOST_BYTES = 256 << 20

#: Limits on the tensors that a newcomer makes room for: a multiple of the size of the model and its optimizer, plus a
#: number of bytes.
MOST_TIMES, MOST_MORE_BYTES = 8, 16 << 30


class Unsuited(RuntimeError):
    """A state that cannot be handed over. Further tries do not help."""


class Worth(enum.Enum):
    """What a process's state can be used for, as the ranks exchange it. For trained states that is their updates."""

    #: For training on, and for newcomers.
    TRAINED = 0
    #: For beginning a training.
    FRESH = -1
    #: Not usable: the rank that gave it was lost on the way.
    SPOILED = -2


class State:
    """Model, optimizers, sampler and other objects with `state_dict` and `load_state_dict`."""

    def __init__(
        self, net: Any, optimizer: Union[Any, Sequence[Any]], sampler: ElasticSampler, others: Dict[str, Any]
    ) -> None:
        self.net, self.sampler, self.others = net, sampler, others
        self.optimizers: List[Any] = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        if not self.optimizers:
            raise ValueError("expected an optimizer, or several")
        #: The update of the present global batch, and what it does to the other objects.
        self.update, self._kept = Updates(self.optimizers), Others(others, self.optimizers)
        self._is_between = False
        #: Updates of the optimizer, over all sizes and restarts, and the sampler's place after the last one.
        self.updates, self._place = 0, sampler.state_dict()
        self.worth = Worth.FRESH
        #: Of all random numbers in the training. The program's own seed, if it has set one.
        self.seed = torch.initial_seed()
        self._device = device_of_net(net)
        #: How often the training was begun, from a checkpoint or from nothing, and the membership of this process.
        self.begun, self.epoch = 0, 0

    def commit(self) -> None:
        """Notes that the present global batch has changed the model."""
        self.updates += 1
        self._place = self.sampler.state_dict()
        self.update.commit()
        self._is_between = True

    def keep(self) -> None:
        """Notes that the other objects have followed the last update."""
        self._kept.keep()
        self._is_between = False

    def undo(self, error: BaseException) -> None:
        """Removes the traces of a global batch that `error` has ended before it changed the model."""
        if not self._is_between:
            if not self.update.undo():
                self.worth = Worth.SPOILED
            self._kept.back()
        self._kept.forget_step(error)

    def zero_grad(self) -> None:
        """Drops all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def back_to_commit(self) -> None:
        """Puts the sampler where the model is."""
        self.sampler.load_state_dict(self._place)

    def tree(self) -> Tree:
        """The whole state. Its tensors are those in training, not copies."""
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        return {
            "net": self.net.state_dict(),
            "optimizer": states[0] if len(states) == 1 else states,
            "others": {name: other.state_dict() for name, other in self.others.items()},
            **self._place_tree(),
        }

    def _place_tree(self) -> Tree:
        stamp = {"begun": self.begun, "epoch": self.epoch, "updates": self.updates}
        return {**stamp, "sampler": self._place, "random": {"seed": self.seed}}

    def inexpressible(self) -> str:
        """The parts of the state that cannot be handed over, and why. Empty if all can."""
        try:
            skeleton.dump(_take_apart(self.tree())[0])
        except skeleton.Inexpressible as error:
            return str(error)
        return ""

    def load(self, tree: Tree) -> None:
        """Continues from the result of `tree` in another process."""
        self.net.load_state_dict(tree["net"])
        for optimizer, state in zip(self.optimizers, self._optimizer_states(tree)):
            optimizer.load_state_dict(state)
        self._load_rest(tree, self.others)

    def _optimizer_states(self, tree: Tree) -> List[Any]:
        states = tree["optimizer"] if isinstance(tree["optimizer"], list) else [tree["optimizer"]]
        if len(states) != len(self.optimizers):
            raise ValueError(f"the state is that of {len(states)} optimizers, and here are {len(self.optimizers)}")
        return states

    def _load_rest(self, tree: Tree, others: Iterable[str]) -> None:
        for name in others:
            self.others[name].load_state_dict(tree["others"][name])
        self.begun = tree.get("begun", 0)
        self.updates, self._place, self.worth = tree["updates"], tree["sampler"], Worth.TRAINED
        # Earlier checkpoints have the states of one rank's generators instead.
        self.seed = tree["random"].get("seed", self.seed)

    def _load_received(self, tree: Tree) -> None:
        """As `load`, for tensors that nothing else uses: `load_state_dict` would copy each once more."""
        mine = self._own_by_name()
        if not all(name in mine and mine[name].data_ptr() == value.data_ptr() for name, value in tree["net"].items()):
            self.net.load_state_dict(tree["net"])
        for optimizer, state in zip(self.optimizers, self._optimizer_states(tree)):
            _load_optimizer(optimizer, state)
        self._load_rest(tree, [name for name in self.others if name in tree["others"]])

    def _own_by_name(self) -> Dict[str, torch.Tensor]:
        """Parameters and buffers by their names in the network's state, without entries that are copies."""
        addresses = {tensor.data_ptr() for tensor in (*self.net.parameters(), *self.net.buffers())}
        state = self.net.state_dict().items()
        return {name: one for name, one in state if torch.is_tensor(one) and one.data_ptr() in addresses}

    def bytes(self) -> int:
        """The approximate bytes to hand over, with an optimizer that keeps two numbers per parameter, as most do."""
        return 3 * int(sum(p.numel() * p.element_size() for p in self.net.parameters()))

    def send(self, source: int, among: Among, keys: Keys, leave_out: bool = False) -> None:
        """Gives the whole state, as rank `source`, to the others. Raises RuntimeError if one of them is lost.

        With `leave_out`, the others keep their own values of parts that cannot be handed over. Without it, such parts
        raise Unsuited.
        """
        tree = self.tree()
        if leave_out:
            tree["others"] = {name: other for name, other in tree["others"].items() if _is_expressible(other)}
        cut, tensors = _take_apart(tree)
        try:
            data = skeleton.dump(cut)
        except skeleton.Inexpressible as error:
            raise Unsuited(str(error)) from None
        _send_bytes(MAGIC + keys.tag("state", data) + data, source, among)
        among.broadcast_all(tensors, source)

    def receive(self, source: int, among: Among, keys: Keys) -> None:
        """Takes the state that rank `source` gives.

        Raises RuntimeError if that rank is lost or gives invalid data. Then all must be received again.
        """
        cut, most = _read(_receive_bytes(source, among), keys), MOST_TIMES * self.bytes() + MOST_MORE_BYTES
        if _slot_bytes(cut) > most:
            raise RuntimeError(f"rank {source} has more than {most} bytes to hand over")
        own = self._own_by_name()
        tensors: List[torch.Tensor] = []

        def fill(slot: Slot, name: str) -> torch.Tensor:
            mine = own.get(name.partition("net/")[2]) if name.startswith("net/") else None
            if mine is None or not _fits(mine, slot):
                mine = slot.empty(_device_of(slot.device, self._device))
            tensors.append(mine)
            return mine

        tree = _put_together(cut, fill)
        self.worth = Worth.SPOILED
        among.broadcast_all(tensors, source)
        self._load_received(tree)


def _load_optimizer(optimizer: Any, state: Tree) -> None:
    """As its `load_state_dict`, but without another copy of each tensor, unless the optimizer loads in its own way."""
    has_hooks = any(getattr(optimizer, f"_optimizer_load_state_dict_{when}_hooks", None) for when in ("pre", "post"))
    ordinary = getattr(torch.optim.Optimizer, "load_state_dict", None)
    if has_hooks or getattr(type(optimizer), "load_state_dict", None) is not ordinary:
        optimizer.load_state_dict(state)
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for number, kept in state["state"].items():
        optimizer.state[parameters[number]] = kept
    for group, new in zip(optimizer.param_groups, state["param_groups"]):
        group.update({key: value for key, value in new.items() if key != "params"})


def device_of_net(net: torch.nn.Module) -> torch.device:
    """Where the parameters of a network are; the CPU if it has none."""
    return next((p.device for p in net.parameters()), torch.device("cpu"))


def _device_of(kind: str, own: torch.device) -> torch.device:
    """The device of this kind for a tensor: the network's own, which need not be the present one."""
    return own if own.type == kind else torch.device(kind)


def _fits(tensor: torch.Tensor, slot: Slot) -> bool:
    alike = (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (slot.shape, slot.dtype, slot.device)
    return alike and tensor.is_contiguous()


def copy(tree: Tree) -> Tree:
    """A copy of the tree in the processor's memory, so that training may go on."""
    cut, tensors = _take_apart(tree)
    copies = iter([tensor.detach().to("cpu", copy=True) for tensor in tensors])
    return _put_together(cut, lambda slot, name: next(copies))


def _take_apart(tree: Tree) -> Tuple[Tree, List[torch.Tensor]]:
    """The tree with slots in place of its tensors, and these, in the tree's order. Tied ones have one slot."""
    tensors: List[torch.Tensor] = []
    numbers: Dict[Any, int] = {}

    def cut(value: Any, name: str) -> Any:
        if not torch.is_tensor(value):
            return value
        slot, place = Slot.of(value), (value.device, value.data_ptr(), value.stride())
        number = numbers.setdefault((slot, place), len(tensors)) if value.data_ptr() else len(tensors)
        if number < len(tensors):
            return Same(number)
        tensors.append(value.detach())
        return slot

    return _map(tree, cut), tensors


def _put_together(cut: Tree, fill: Callable[[Slot, str], torch.Tensor]) -> Tree:
    tensors: List[torch.Tensor] = []

    def put(value: Any, name: str) -> Any:
        if isinstance(value, Slot):
            tensors.append(fill(value, name))
            return tensors[-1]
        if isinstance(value, Same):
            if value.number >= len(tensors):
                raise RuntimeError("the state cannot be read: expected a number of an earlier tensor")
            return tensors[value.number]
        return value

    return _map(cut, put)


def _is_expressible(tree: Tree) -> bool:
    try:
        skeleton.dump(_take_apart(tree)[0])
    except skeleton.Inexpressible:
        return False
    return True


def _slot_bytes(cut: Tree) -> int:
    sizes: List[int] = []

    def count(value: Any, _name: str) -> Any:
        if isinstance(value, Slot):
            sizes.append(value.bytes())
        return value

    _map(cut, count)
    return sum(sizes)


def _read(data: bytes, keys: Keys) -> Tree:
    """The content of data from `send`. Raises RuntimeError if no member of this epoch sent it; Unsuited for another
    version.
    """
    if not data.startswith(MAGIC):
        raise Unsuited("another process of the job uses another version of infill's Python package")
    tag, text = data[len(MAGIC) :][:TAG_BYTES], data[len(MAGIC) + TAG_BYTES :]
    if not keys.proves(tag, "state", text):
        raise RuntimeError("the state was not sent by a member")
    try:
        return skeleton.load(text)
    except skeleton.Malformed as error:
        raise RuntimeError(f"the state cannot be read: {error}") from None


def _map(tree: Tree, leaf: Callable[[Any, str], Any], name: str = "") -> Tree:
    """The tree with other leaves. The name of a leaf is its path from the root: keys separated by slashes."""
    if isinstance(tree, dict):
        # The result is an ordinary dict, also for a special kind of state_dict: the additions of that kind are not
        # state.
        return {key: _map(value, leaf, f"{name}/{key}" if name else str(key)) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_map(value, leaf, f"{name}/{i}") for i, value in enumerate(tree))
    return leaf(tree, name)


def _send_bytes(data: bytes, source: int, among: Among) -> None:
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    among.broadcast(torch.tensor([flat.numel()]), source)
    among.broadcast(flat, source)


def _receive_bytes(source: int, among: Among) -> bytes:
    size = torch.zeros(1, dtype=torch.int64)
    among.broadcast(size, source)
    if not 0 < int(size) <= MOST_BYTES:
        raise RuntimeError(f"rank {source} has {int(size)} bytes to say of its state: at most {MOST_BYTES} are read")
    flat = torch.empty(int(size), dtype=torch.uint8)
    among.broadcast(flat, source)
    return bytes(flat.numpy().tobytes())
