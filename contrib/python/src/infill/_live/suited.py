"""Checks whether a program's steps can be repeated."""

from __future__ import annotations

from typing import Any

import torch

from ..torch import ElasticSampler

#: Exception of a device without memory.
OutOfMemory = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError


def check_updates(net: Any) -> None:
    """Raises ValueError if an optimizer steps while gradients are still computed: its steps cannot be undone."""
    for name, parameter in net.named_parameters():
        hooks = (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()
        if hasattr(parameter, "_in_backward_optimizers") or not all(map(_is_an_exchange, hooks)):
            raise ValueError(
                f"the parameter {name} is updated, or has a hook, as soon as its gradient is there. A step in which a "
                "member is lost could not be undone. Call optimizer.step() after the last backward pass instead"
            )


def _is_an_exchange(hook: Any) -> bool:
    """Whether the hook is one of DistributedDataParallel, which exchanges gradients in this way if it is compiled."""
    function = getattr(hook, "func", hook)
    return str(getattr(function, "__module__", "")).startswith("torch.nn.parallel.")


def check_micro_batch(net: Any, sampler: ElasticSampler) -> None:
    """Raises ValueError if ranks cannot choose their micro-steps independently of each other."""
    if sampler.fitting and any(isinstance(module, torch.nn.SyncBatchNorm) for module in net.modules()):
        raise ValueError('micro_batch="auto" is not for SyncBatchNorm: all ranks need equally many micro-steps')
