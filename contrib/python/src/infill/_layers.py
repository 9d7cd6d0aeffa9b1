"""Measures how long the layers of a model take on one device."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._model_facts import _blocks

#: The version of the format that infill reads.
VERSION = 1

#: Most layers that infill reads.
MOST_LAYERS = 512

#: Number of runs of each layer before it is measured; then the fewest and the most that are measured.
_WARM_UP, _FEWEST, _MOST = 2, 5, 50

#: Approximate time to spend on one layer, seconds.
_LAYER_SECS = 0.5


@dataclasses.dataclass(frozen=True)
class ProfiledLayer:
    """One layer, for the whole batch."""

    #: The layer's name in the model.
    name: str
    forward_secs: float
    backward_secs: float
    #: Numbers in its parameters. Shared parameters count where they are used first.
    parameters: int
    #: Bytes of its outputs.
    activation_bytes: int


@dataclasses.dataclass(frozen=True)
class LayerProfile:
    """The layers of a model, in the order in which they ran."""

    #: The device, as its driver names it; cpu if there is no other.
    device: str
    #: Samples of the batch.
    batch: int
    #: Bytes of a gradient's element.
    element_bytes: int
    layers: Tuple[ProfiledLayer, ...]

    def write(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a file for `infill run --layers`."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": VERSION, **dataclasses.asdict(self)}, file, indent=1)
            file.write("\n")


def profile_layers(model: Any, batch: Any, samples: Optional[int] = None) -> LayerProfile:
    """Times forward and backward of each layer of a torch.nn.Module on the model's device.

    `batch`: the arguments of the model: a tensor, a sequence of positional or a mapping of named arguments.
    `samples`: the number of samples in the batch; None for the length of its first tensor.

    Layers are the model's children. A child that holds several transformer blocks, or is a ModuleList or Sequential,
    is replaced by its own children. A child that runs twice is two layers. Work of the model between its layers is
    not measured. Each layer is timed alone, as often as half a second allows, with its inputs from one run of the
    whole model. The medians count. Parameters, gradients, buffers and random state are restored afterwards.

    Raises TypeError if the model is not a module or the batch has no tensor; ValueError if no layer ran, or more than
    512; and any error that the model raises.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, not {type(model).__name__}")
    args, kwargs = _arguments(batch)
    count = samples if samples is not None else _samples((args, kwargs))
    if count < 1:
        raise ValueError(f"samples = {count}: expected a positive number")
    first = next(iter(model.parameters()), None)
    device = first.device if first is not None else torch.device("cpu")
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            calls = _calls(model, args, kwargs)
            if not 1 <= len(calls) <= MOST_LAYERS:
                raise ValueError(f"{len(calls)} layers ran; expected 1 to {MOST_LAYERS}")
            counted: set[int] = set()
            layers = tuple(_profiled(name, layer, given, device, counted) for name, layer, given in calls)
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return LayerProfile(name, count, first.element_size() if first is not None else 4, layers)


_Given = Tuple[Tuple[Any, ...], Dict[str, Any]]


def _arguments(batch: Any) -> _Given:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


def _tensors(value: Any) -> Iterator[Any]:
    """All tensors in nested sequences and mappings, and in the outputs of models."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for part in value:
            yield from _tensors(part)


def _samples(batch: Any) -> int:
    first = next(_tensors(batch), None)
    if first is None or not first.dim():
        raise TypeError("the batch has no tensor with samples in it; expected what the model is called with")
    return int(first.shape[0])


def _layers(model: Any, prefix: str = "") -> Iterator[Tuple[str, Any]]:
    """The layers by name, in the order in which they stand."""
    from torch import nn

    for name, child in model.named_children():
        full = f"{prefix}{name}"
        blocks = list(_blocks(child))
        holds_blocks = any(block is not child for block in blocks)
        if holds_blocks or isinstance(child, (nn.ModuleList, nn.Sequential)):
            yield from _layers(child, f"{full}.")
        else:
            yield full, child


def _calls(model: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Tuple[str, Any, _Given]]:
    """The layers that ran in one run of the model, with their inputs."""
    import torch

    calls: List[Tuple[str, Any, _Given]] = []

    def noting(name: str) -> Callable[[Any, Tuple[Any, ...], Dict[str, Any]], None]:
        return lambda layer, given, named: calls.append((name, layer, (given, named)))

    layers = list(_layers(model)) or [("", model)]
    hooks = [layer.register_forward_pre_hook(noting(name), with_kwargs=True) for name, layer in layers]
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _detached(value: Any) -> Any:
    """Copies of the inputs, with tensors that require gradients where possible."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.is_floating_point())
    if isinstance(value, dict):
        return {name: _detached(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_detached(part) for part in value)
    return value


def _profiled(name: str, layer: Any, given: _Given, device: Any, counted: "set[int]") -> ProfiledLayer:
    import torch

    args, kwargs = _detached(given)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    wanted = [t for t in _tensors((args, kwargs)) if t.requires_grad] + parameters
    forward: List[float] = []
    backward: List[float] = []
    began, passed = time.perf_counter(), 0
    with torch.enable_grad():
        while len(forward) < _WARM_UP + _FEWEST or (
            len(forward) < _WARM_UP + _MOST and time.perf_counter() - began < _LAYER_SECS
        ):
            start = _now(device)
            out = list(_tensors(layer(*args, **kwargs)))
            forward.append(_now(device) - start)
            passed = sum(t.numel() * t.element_size() for t in out)
            out = [t for t in out if t.requires_grad]
            gradients = [torch.ones_like(t) for t in out]
            start = _now(device)
            if out and wanted:
                torch.autograd.grad(out, wanted, gradients, allow_unused=True)
            backward.append(_now(device) - start)
    own = [p for p in layer.parameters() if id(p) not in counted]
    counted.update(map(id, own))
    median = [statistics.median(secs[_WARM_UP:]) for secs in (forward, backward)]
    return ProfiledLayer(name, median[0], median[1], sum(p.numel() for p in own), passed)


def _now(device: Any) -> float:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
