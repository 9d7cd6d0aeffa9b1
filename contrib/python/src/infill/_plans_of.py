"""Finds execution plans that make sense for a model."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._model_facts import ModelFacts, facts_of
from ._plans import PlanSpec, SuggestedPlans

#: Most plans of a file that infill reads.
MOST_PLANS = 16

#: Most processes that share a layer, if each process has a separate node.
MOST_TENSOR_PARALLEL = 8

#: Largest size, in nodes, that infill accepts.
MOST_NODES = 10_000


def plans_of(
    model: Any,
    *,
    global_batch: Optional[int] = None,
    sequence: Optional[int] = None,
    nodes: Optional[str] = None,
    ranks: int = 1,
    accumulate: int = 4,
) -> SuggestedPlans:
    """The facts of a torch.nn.Module, and the execution plans that make sense for it.

    `global_batch`: samples of a step, over all processes; `sequence`: tokens of a sample; None if not known.
    `nodes`: sizes that the job may have, in the form of `infill run --nodes`; `ranks`: processes on each node.

    Plans: `ddp`, `zero1`, `fsdp` (stage 3 of ZeRO) and tensor parallelism `tp2`, `tp4`, `tp8`, if it divides the
    heads and the hidden size. Each also comes with activations computed again (`-gc`), and with the gradients of
    `accumulate` micro-batches added up (`-ga4`). There are 16 at most. A plan has the sizes at which its replicas and
    micro-batches divide the global batch; ZeRO has those with several replicas. A plan without a size is left out.
    Tensor parallelism stays on a node, unless each node has one process.

    Raises ValueError for a number that is not positive, for sizes that cannot be read, for a model without parameters
    or with some whose shape is not known yet, and if no plan divides the global batch at any size; TypeError if the
    model is not a module.
    """
    facts = facts_of(model, global_batch, sequence)
    for name, number in (("ranks", ranks), ("accumulate", accumulate)):
        if number < 1:
            raise ValueError(f"{name} = {number}: expected a positive number")
    ways = dict(_ways(facts, ranks, accumulate))
    if nodes is not None:
        ways = _with_sizes(ways, nodes, ranks, global_batch)
    if not ways:
        raise ValueError(f"no plan divides a global batch of {global_batch} at sizes {nodes} with {ranks} ranks each")
    return SuggestedPlans(facts, dict(list(ways.items())[:MOST_PLANS]))


def _ways(facts: ModelFacts, ranks: int, accumulate: int) -> Iterator[Tuple[str, PlanSpec]]:
    """All plans, for any size: first the plain ones, then those that need less memory."""
    plain: Dict[str, PlanSpec] = {"ddp": {}, "zero1": {"zero": 1}, "fsdp": {"zero": 3}}
    plain.update({f"tp{degree}": {"tp": degree} for degree in _tensor_parallel(facts, ranks)})
    yield from plain.items()
    for name, way in plain.items():
        yield f"{name}-gc", {**way, "checkpointing": True}
    if accumulate > 1:
        for name, way in plain.items():
            yield f"{name}-ga{accumulate}", {**way, "accumulate": accumulate}


def _with_sizes(
    ways: Mapping[str, PlanSpec], nodes: str, ranks: int, global_batch: Optional[int]
) -> Dict[str, PlanSpec]:
    """Each plan with the sizes among `nodes` at which it can run. Plans without a size are left out."""
    sizes, able = _sizes(nodes), {}
    for name, way in ways.items():
        fitting = [n for n in sizes if _divides(way, n * ranks, global_batch)]
        if fitting and global_batch is None and isinstance(sizes, range):
            # There may be thousands. infill takes those of the range that `tp` divides.
            able[name] = PlanSpec(**way, nodes=f"{fitting[0]}-{fitting[-1]}")
        elif fitting:
            able[name] = PlanSpec(**way, nodes=",".join(map(str, fitting)))
    return able


def _tensor_parallel(facts: ModelFacts, ranks: int) -> List[int]:
    """Degrees that divide heads and hidden size; empty if one of these is not known."""
    heads, hidden = facts.heads, facts.hidden
    if not heads or not hidden:
        return []
    most = ranks if ranks > 1 else MOST_TENSOR_PARALLEL
    return [n for n in (2, 4, 8) if n <= most and ranks % min(n, ranks) == 0 and not (heads % n or hidden % n)]


def _divides(way: PlanSpec, world: int, global_batch: Optional[int]) -> bool:
    """Whether this plan can divide that number of processes, and the batch over them."""
    replicas, rest = divmod(world, way.get("tp", 1))
    if rest or (way.get("zero") and replicas < 2):
        return False
    return global_batch is None or global_batch % (replicas * way.get("accumulate", 1)) == 0


def _sizes(text: str) -> Sequence[int]:
    """The sizes of `4`, `2-8` or `1,2,4,8`, ascending.

    Raises ValueError for any other form, or for a size outside 1 to MOST_NODES.
    """
    try:
        if "," in text:
            sizes: Sequence[int] = sorted({int(word) for word in text.split(",")})
        else:
            least, _, most = text.partition("-")
            sizes = range(int(least), int(most or least) + 1)
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or sizes[-1] > MOST_NODES:
        raise ValueError(f"nodes = {text!r}: expected sizes of 1 to {MOST_NODES} nodes, such as 4, 2-8 or 1,2,4,8")
    return sizes
