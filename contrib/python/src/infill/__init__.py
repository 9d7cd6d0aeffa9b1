"""For training programs that run under `infill run`.

    import infill

    infill.on_rescale(save)
    for step, batch in enumerate(batches, start):
        loss = train(batch)
        infill.step(samples=len(batch), step=step, loss=loss)

`infill.step` at each step boundary reports progress. When the job gets another size, it lets all ranks call `save`
after the same step and exit. Outside `infill run` it does nothing.

`infill.launch` in a batch script starts a command with execution plans that are declared in Python. `infill.plans_of`
writes the plans that make sense for a model. `infill.profile_layers` measures how long its layers take.

`infill.torch.Elastic` keeps processes alive while others join and leave. `infill.torch` also has a sampler, and
`infill.lightning`, `infill.transformers` and `infill.keras` have callbacks. Studies are in `infill.optuna`. Each is
imported when it is first used.

Older names stay: `infill.live` is `infill.torch.Elastic`, `infill.run` is `launch`, and `Way` is `PlanSpec`.
"""

from __future__ import annotations

import importlib
import types

from . import _children
from ._layers import LayerProfile, ProfiledLayer, profile_layers
from ._live import live
from ._model_facts import ModelFacts
from ._plan import Plan, plan
from ._plans import PlanSpec, SuggestedPlans, Way, launch, plans, run
from ._plans_of import plans_of
from ._progress import report
from ._rescale import leave, on_rescale, should_checkpoint, step
from ._version import __version__

__all__ = [
    "LayerProfile",
    "ModelFacts",
    "Plan",
    "PlanSpec",
    "ProfiledLayer",
    "SuggestedPlans",
    "Way",
    "__version__",
    "launch",
    "leave",
    "live",
    "on_rescale",
    "plan",
    "plans",
    "plans_of",
    "profile_layers",
    "report",
    "run",
    "should_checkpoint",
    "step",
]

_SUBMODULES = ("keras", "lightning", "optuna", "torch", "transformers")

_children.spare()


def __getattr__(name: str) -> types.ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
