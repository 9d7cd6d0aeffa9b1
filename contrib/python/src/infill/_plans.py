"""Writes execution plans that are declared in Python, and starts `infill run` with them."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, TypedDict, Union

from ._model_facts import ModelFacts


class PlanSpec(TypedDict, total=False):
    """An execution plan: the keys of a [[plan]] of `infill plans --help`, except for its name."""

    #: Sizes at which it can run, in the form of `--nodes`.
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
    #: Arguments and variables that are added to the command's own.
    args: Sequence[str]
    env: Mapping[str, str]


#: The older name of `PlanSpec`.
Way = PlanSpec

PlanSpecs = Mapping[str, PlanSpec]


def plans(ways: Optional[PlanSpecs] = None, /, **named: PlanSpec) -> str:
    """A file for `infill run --plans`: the plans of a command by name, the first to begin with first.

    Raises TypeError for a value that a plan cannot hold. `infill plans check` checks the values.
    """
    return "\n".join(_table(plan) for plan in _list({**(ways or {}), **named}))


@dataclasses.dataclass
class SuggestedPlans:
    """The facts of a model, and the plans with which it can be trained. Remove or add plans as you like."""

    facts: ModelFacts
    #: Plans by name, the first to begin with first.
    ways: Dict[str, PlanSpec]

    def text(self) -> str:
        """A file for `infill run --plans FILE` and `infill plans check FILE`: the table [model], then the plans."""
        facts = [f"{name} = {_value(value)}" for name, value in _known(self.facts).items()]
        return "\n".join(["[model]", *facts, "", plans(self.ways)])

    def write(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes `text` to a file and replaces its content.

        Raises OSError if it cannot be written.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text())


def launch(
    *command: str, plans: Union[PlanSpecs, SuggestedPlans, None] = None, **flags: Union[str, int, float, bool]
) -> NoReturn:
    """Replaces this process by `infill run` of the command, with these plans and flags.

    The flag `at_least=40` is `--at-least=40`.

    Raises TypeError for a value that a plan cannot hold, and OSError if there is no `infill` program.
    """
    words = ["infill", "run"]
    if isinstance(plans, SuggestedPlans):
        words.append("--plans=" + json.dumps({"model": _known(plans.facts), "plan": _list(plans.ways)}))
    elif plans is not None:
        words.append("--plans=" + json.dumps({"plan": _list(plans)}))
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is not False:
            words.append(flag if value is True else f"{flag}={value}")
    os.execvp(words[0], [*words, "--", *command])


#: The older name of `launch`.
run = launch


def _list(ways: Mapping[str, Mapping[str, Any]]) -> List[Dict[str, Any]]:
    for name, way in ways.items():
        unknown = set(way) - set(PlanSpec.__annotations__)
        if unknown:
            known = ", ".join(PlanSpec.__annotations__)
            raise TypeError(f"plan {name!r} has {', '.join(sorted(unknown))}; expected {known}")
    return [{"name": name, **way} for name, way in ways.items()]


def _known(facts: ModelFacts) -> Dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(facts).items() if value is not None}


def _table(plan: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in plan.items() if key != "env"]
    env = [f"{_value(name)} = {_value(value)}" for name, value in plan.get("env", {}).items()]
    if env:
        lines += ["[plan.env]", *env]
    return "\n".join(["[[plan]]", *lines, ""])


def _value(value: Any) -> str:
    """A value as TOML. Numbers, booleans, lists of strings and strings look as in JSON, except for one character."""
    plain = list(value) if isinstance(value, (list, tuple)) else value
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
