"""Execution plans declared in Python, and `infill run` started with them."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, TypedDict, Union


class Way(TypedDict, total=False):
    """What a [[plan]] of `infill plans --help` holds besides its name."""

    #: Sizes at which it can run, as `--nodes` has them.
    nodes: str
    #: Types of nodes on which it can run, such as "a100".
    types: Sequence[str]
    #: Processes that share each layer; stages that the layers are divided into.
    tp: int
    pp: int
    #: Stage of ZeRO, 0 to 3.
    zero: int
    #: Whether the optimizer works on the CPUs.
    offload: bool
    #: Micro-batches whose gradients are added up before a step.
    accumulate: int
    #: Whether activations are computed again for the backward pass.
    checkpointing: bool
    #: Arguments and variables that the command gets besides its own.
    args: Sequence[str]
    env: Mapping[str, str]


Ways = Mapping[str, Way]


def plans(ways: Optional[Ways] = None, /, **named: Way) -> str:
    """A file for `infill run --plans`: the ways in which a command can run by name, the one to begin with first.

    Raises TypeError for what no plan can hold; `infill plans check` judges the values.
    """
    return "\n".join(_table(plan) for plan in _list({**(ways or {}), **named}))


def run(*command: str, plans: Optional[Ways] = None, **flags: Union[str, int, float, bool]) -> NoReturn:
    """Becomes `infill run` of this command, with these plans and flags: `at_least=40` is `--at-least=40`.

    Raises TypeError for what no plan can hold, and OSError if there is no `infill` to become.
    """
    words = ["infill", "run"]
    if plans is not None:
        words.append("--plans=" + json.dumps({"plan": _list(plans)}))
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is not False:
            words.append(flag if value is True else f"{flag}={value}")
    os.execvp(words[0], [*words, "--", *command])


def _list(ways: Mapping[str, Mapping[str, Any]]) -> List[Dict[str, Any]]:
    for name, way in ways.items():
        unknown = set(way) - set(Way.__annotations__)
        if unknown:
            known = ", ".join(Way.__annotations__)
            raise TypeError(f"plan {name!r} has {', '.join(sorted(unknown))}; expected {known}")
    return [{"name": name, **way} for name, way in ways.items()]


def _table(plan: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in plan.items() if key != "env"]
    env = [f"{_value(name)} = {_value(value)}" for name, value in plan.get("env", {}).items()]
    if env:
        lines += ["[plan.env]", *env]
    return "\n".join(["[[plan]]", *lines, ""])


def _value(value: Any) -> str:
    """As TOML: numbers, truths and lists of strings look as in JSON, and so do strings but for one character."""
    plain = list(value) if isinstance(value, (list, tuple)) else value
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
