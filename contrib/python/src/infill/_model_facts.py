"""Reads the facts of a model that its execution plans depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

#: Names of each fact in a model's `config` at Hugging Face.
_OF_CONFIG = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
}

#: Attributes in which modules keep the number of their attention heads.
_HEADS = ("num_heads", "n_head", "n_heads", "heads", "num_attention_heads")


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """Facts of a model. An unknown fact is None."""

    #: Parameters, millions. Shared ones count once.
    params_mi: float
    #: Blocks of a transformer.
    layers: Optional[int] = None
    #: Hidden size: numbers that represent a token between two layers.
    hidden: Optional[int] = None
    #: Attention heads of a layer.
    heads: Optional[int] = None
    #: Tokens of a sample.
    sequence: Optional[int] = None
    #: Samples of a step, over all processes.
    global_batch: Optional[int] = None


def facts_of(model: Any, global_batch: Optional[int] = None, sequence: Optional[int] = None) -> ModelFacts:
    """Reads the facts of a torch.nn.Module: parameters; and a transformer's layers, hidden size and heads.

    `model.config` comes first, with the names of Hugging Face. The other facts come from the modules: similar blocks
    with attention in a ModuleList, a Sequential or a TransformerEncoder; their heads; the width of their norms. Where
    modules disagree, the fact is None.

    Raises ValueError if the model has no parameters, or some whose shape is not known yet, or if a number is not
    positive; TypeError if it is not a module.
    """
    if not hasattr(model, "named_parameters"):
        raise TypeError(f"expected a torch.nn.Module, not {type(model).__name__}")
    for name, number in (("global_batch", global_batch), ("sequence", sequence)):
        if number is not None and _count(number) is None:
            raise ValueError(f"{name} = {number!r}: expected a positive integer, or None if it is not known")
    read = {name: _of_config(model, name) for name in _OF_CONFIG}
    if None in read.values():
        of_tree = _of_tree(model)
        read = {name: value or of_tree[name] for name, value in read.items()}
    return ModelFacts(_parameters(model) / 1e6, **read, sequence=sequence, global_batch=global_batch)


def _parameters(model: Any) -> int:
    """The number of elements in all parameters."""
    sizes = []
    for name, parameter in model.named_parameters():
        try:
            sizes.append(int(parameter.numel()))
        except ValueError as error:
            raise ValueError(f"parameter {name} has no shape yet: run the model once, then ask") from error
    if not sum(sizes):
        raise ValueError(f"{type(model).__name__} has no parameters")
    return sum(sizes)


def _count(value: object) -> Optional[int]:
    """The value if it is a positive integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _of_config(model: Any, fact: str) -> Optional[int]:
    """A fact from the model's `config`, or from the config of the model that it wraps."""
    config = getattr(model, "config", getattr(getattr(model, "module", None), "config", None))

    def get(name: str) -> object:
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)

    # In a model with an encoder and a decoder this counts the layers of one of them.
    if fact == "layers" and get("is_encoder_decoder"):
        return None
    return next((count for count in map(_count, map(get, _OF_CONFIG[fact])) if count), None)


def _of_tree(model: Any) -> Mapping[str, Optional[int]]:
    """The facts from the model's modules."""
    blocks = list(_blocks(model))
    modules = [module for part in blocks or [model] for module in part.modules()]
    return {
        "layers": len(blocks) or None,
        "hidden": _agreed(_attention_widths(modules)) or _agreed(_norm_widths(blocks)),
        "heads": _agreed(heads for heads in map(_heads, modules) if heads),
    }


def _agreed(values: Iterable[int]) -> Optional[int]:
    """The value if all agree on one, else None."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _heads(module: Any) -> Optional[int]:
    """The number of heads of an attention module, else None."""
    return next((count for count in (_count(getattr(module, name, None)) for name in _HEADS) if count), None)


def _attends(module: Any) -> bool:
    return any(_heads(part) for part in module.modules())


def _blocks(module: Any) -> Iterator[Any]:
    """The layers of a transformer in a module: similar parts with attention, in a row."""
    from torch import nn

    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        yield module
        return
    in_a_row: List[Any] = []
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        in_a_row = [part for part in module if _attends(part)]
    if len(in_a_row) > 1 and len({_form(part) for part in in_a_row}) == 1:
        yield from in_a_row
        return
    inside = [block for part in module.children() for block in _blocks(part)]
    # A single part with a single attention is a layer too. With several, it may hold layers of any form.
    alone = len(in_a_row) == 1 and sum(1 for part in in_a_row[0].modules() if _heads(part)) == 1
    yield from inside or (in_a_row if alone else [])


def _form(module: Any) -> Tuple[object, ...]:
    """The properties that are equal in similar layers."""
    return type(module), tuple((name, tuple(p.shape)) for name, p in module.named_parameters())


def _attention_widths(modules: Sequence[Any]) -> Iterator[int]:
    from torch import nn

    return (module.embed_dim for module in modules if isinstance(module, nn.MultiheadAttention))


def _norm_widths(blocks: Sequence[Any]) -> Iterator[int]:
    """Vector lengths of the norms (LayerNorm, RMSNorm and similar) that belong to a block itself."""
    norms = (part for block in blocks for part in block.children() if "Norm" in type(part).__name__)
    return (p.shape[0] for norm in norms for p in norm.parameters(recurse=False) if p.dim() == 1)
