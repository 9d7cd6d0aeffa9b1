"""Reads from Slurm's accounting which node was whose and when, and so what the main queue left idle.

It asks infill nothing. Times are whole seconds, as Slurm stores them.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

# Shorter gaps are not worth starting in, so they do not count.
SHORT_GAP_SECS = 30

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Record:
    """A line of sacct: the part of a job between two requeues or changes of its size."""

    id: int
    name: str
    user: str
    partition: str
    state: str
    exit_code: str
    nodes: tuple[str, ...]
    # GPUs on all nodes together, if GPUs are counted.
    gpus: int
    submit: float | None
    start: float | None
    end: float | None


@dataclasses.dataclass(frozen=True)
class Harvest:
    """Node-seconds in gaps that are long enough to count."""

    gap_node_seconds: float
    harvested_node_seconds: float
    gaps: int
    # Node-seconds in gaps too short to count.
    short_gap_node_seconds: float

    @property
    def ratio(self) -> float:
        """The harvested share of the gaps."""
        return self.harvested_node_seconds / self.gap_node_seconds if self.gap_node_seconds else 0.0


def parse(text: str) -> list[Record]:
    """Parses the records of sacct's output (`-D -X -P -n`, with cluster.SACCT_FIELDS)."""
    return [_record(line) for line in text.splitlines() if line.strip()]


def _record(line: str) -> Record:
    # A job name may hold a bar, so the fields behind it are counted from the end.
    first, *rest = line.split("|")
    name = "|".join(rest[:-9])
    user, partition, state, exit_code, nodes, tres, *times = rest[-9:]
    # For example "CANCELLED by 6100".
    state = state.split()[0] if state else ""
    gpus = re.search(r"(?:^|,)gres/gpu=(\d+)", tres)
    held = (tuple(hosts(nodes)), int(gpus[1]) if gpus else 0)
    return Record(int(first), name, user, partition, state, exit_code, *held, *map(_time, times))


def _time(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def hosts(text: str) -> list[str]:
    """The names in a host list such as `n[1-3,7],m2`."""
    if text in ("", "None assigned", "(null)"):
        return []
    names = []
    for prefix, inside in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", text):
        names += [prefix + number for number in _numbers(inside)] if inside else [prefix]
    return names


def _numbers(text: str) -> Iterable[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def by_gpu(records: Sequence[Record], a_node: int) -> list[Record]:
    """The records with GPUs instead of nodes, `a_node` per node: `n1:0` is the first GPU of n1.

    The accounting tells only how many GPUs a job had. So it gets the free ones with the lowest numbers, as evenly
    over its nodes as possible. Times are whole seconds: a GPU that seems to be held for a second too long is shared
    then.
    """
    never = float("inf")
    ends = [never if r.end is None else r.end for r in records]
    had = [at for at, r in enumerate(records) if r.nodes and r.start is not None and r.start < ends[at]]
    turns = [(records[at].start, 1, at) for at in had] + [(ends[at], 0, at) for at in had]
    users: dict[str, int] = {}
    places: dict[int, list[str]] = {}
    # In the same second, ending jobs make room for starting ones.
    for _, starts, at in sorted(turns):
        if not starts:
            for place in [place for place in places[at] if users.get(place) == at]:
                del users[place]
            continue
        places[at] = []
        each, more = divmod(records[at].gpus, len(records[at].nodes))
        for number, node in enumerate(records[at].nodes):
            names = [f"{node}:{gpu}" for gpu in range(a_node)]
            # Free GPUs come first, then those that are free soonest.
            names.sort(key=lambda name: ends[users[name]] if name in users else 0)
            taken = names[: each + (number < more)]
            users.update(dict.fromkeys(taken, at))
            places[at] += taken
    return [dataclasses.replace(r, nodes=tuple(places.get(at, ()))) for at, r in enumerate(records)]


def busy(records: Iterable[Record], partition: str, node: str, period: Interval) -> list[Interval]:
    """The intervals in the period in which jobs of this partition had this node. Unended ones run to its end."""
    intervals = []
    for record in records:
        if record.partition != partition or node not in record.nodes or record.start is None:
            continue
        intervals.append((record.start, period[1] if record.end is None else record.end))
    return clip(merge(intervals), period)


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of the intervals, disjoint and in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def clip(intervals: Iterable[Interval], period: Interval) -> list[Interval]:
    """The parts of the intervals that lie in the period."""
    cut = ((max(start, period[0]), min(end, period[1])) for start, end in intervals)
    return [(start, end) for start, end in cut if start < end]


def gaps(taken: Sequence[Interval], period: Interval) -> list[Interval]:
    """The parts of the period outside of `taken` (disjoint, in order)."""
    edges = [period[0], *(edge for interval in taken for edge in interval), period[1]]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2]) if start < end]


def seconds(intervals: Iterable[Interval]) -> float:
    """The total length of the intervals."""
    return sum(end - start for start, end in intervals)


def harvest(records: Sequence[Record], nodes: Sequence[str], period: Interval) -> Harvest:
    """Counts the gaps of every node, and the parts of them that infill's jobs (leads and wings) had."""
    gap = got = short = 0.0
    count = 0
    for node in nodes:
        used = busy(records, "infill", node, period)
        for one in gaps(busy(records, "main", node, period), period):
            if one[1] - one[0] <= SHORT_GAP_SECS:
                short += one[1] - one[0]
                continue
            count += 1
            gap += one[1] - one[0]
            got += seconds(clip(used, one))
    return Harvest(gap, got, count, short)


def held(records: Sequence[Record], job: int, nodes: Sequence[str], period: Interval) -> float:
    """Node-seconds of a malleable job: of its lead, and of the wings that are named after it."""
    mine = [r for r in records if r.partition == "infill" and (r.id == job or r.name == f"wing:{job}")]
    return sum(seconds(busy(mine, "infill", node, period)) for node in nodes)


def lives(records: Iterable[Record], job: int) -> list[Record]:
    """All records of one job, oldest first."""
    return sorted((r for r in records if r.id == job), key=lambda r: (r.submit or 0, r.start or float("inf")))


def first_wait(records: Iterable[Record], job: int) -> float | None:
    """Seconds from the submission of a job to its first start."""
    mine = lives(records, job)
    starts = [r.start for r in mine if r.start is not None]
    submits = [r.submit for r in mine if r.submit is not None]
    return min(starts) - min(submits) if starts and submits else None
