"""The summary of a run: a document for programs, and the same as text."""

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import accounting
import load

NODES = tuple(f"n{i}" for i in range(1, 9))

# Where nodes are shared: the GPUs of two nodes, with the names of accounting.by_gpu.
GPUS_A_NODE = 4
GPUS = tuple(f"n{i}:{gpu}" for i in (1, 2) for gpu in range(GPUS_A_NODE))


@dataclasses.dataclass(frozen=True)
class Facts:
    """All data of the document."""

    slurm: str
    # When the malleable jobs were submitted. The measured period begins then.
    started: float
    # Whether to count GPUs of shared nodes instead of nodes.
    shared: bool
    records: Sequence[accounting.Record]
    # The waits of each main job, by name (see `waits`): with infill, and before, without it.
    waits: Mapping[str, dict[str, Any]]
    before: Mapping[str, dict[str, Any]]
    # Names of the malleable jobs, by job id.
    malleable: Mapping[int, str]
    # The daemon's last answer about each malleable job.
    views: Mapping[int, dict[str, Any]]
    # Repeated and missing steps, from the job's own log.
    steps: Mapping[int, tuple[int, int] | None]
    # Node-seconds of useful steps, from the same log.
    useful: Mapping[int, float | None]


def waits(
    submitted: Sequence[load.Submitted], records: Sequence[accounting.Record], work: pathlib.Path
) -> dict[str, dict[str, Any]]:
    """How long each main job waited, from sacct and from the clock of its own script."""
    return {
        s.job.name: {
            "id": s.id,
            "nodes": s.job.nodes,
            "wait_s": accounting.first_wait(records, s.id),
            "script_wait_s": _script_wait(s, work),
        }
        for s in submitted
    }


def _script_wait(job: load.Submitted, work: pathlib.Path) -> float | None:
    try:
        return round(float((work / f"{job.id}.start").read_text()) - job.at, 3)
    except (OSError, ValueError):
        return None


def document(facts: Facts) -> dict[str, Any]:
    """Makes the document, schema 1."""
    main_jobs = [_main_job(name, wait, facts.before[name]) for name, wait in facts.waits.items()]
    delays = [job["start_delay_s"] for job in main_jobs if job["start_delay_s"] is not None]
    ids = {job["id"] for job in main_jobs}
    period = (float(int(facts.started)), max(r.end or 0.0 for r in facts.records if r.id in ids))
    harvest = accounting.harvest(facts.records, _units(facts), period)
    jobs = [_malleable_job(id, name, facts) for id, name in facts.malleable.items()]
    return {
        "schema": 1,
        "slurm": facts.slurm,
        "unit": "GPU" if facts.shared else "node",
        "period_s": period[1] - period[0],
        "gaps": harvest.gaps,
        "gap_node_seconds": harvest.gap_node_seconds,
        "harvested_node_seconds": harvest.harvested_node_seconds,
        "harvest_ratio": round(harvest.ratio, 4),
        "short_gap_node_seconds": harvest.short_gap_node_seconds,
        "main_jobs": main_jobs,
        "main_delay_median_s": statistics.median(delays) if delays else None,
        "main_delay_max_s": max(delays, default=None),
        "malleable_jobs": jobs,
        "useful_ratio": _ratio(
            sum(job["useful_node_seconds"] or 0.0 for job in jobs), sum(job["held_node_seconds"] for job in jobs)
        ),
    }


def _units(facts: Facts) -> Sequence[str]:
    return GPUS if facts.shared else NODES


def _ratio(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else round(part / whole, 4)


def _main_job(name: str, wait: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": wait["id"],
        "name": name,
        "nodes": wait["nodes"],
        "start_delay_s": _difference(wait["wait_s"], before["wait_s"]),
        "script_start_delay_s": _difference(wait["script_wait_s"], before["script_wait_s"]),
        "wait_s": wait["wait_s"],
        "baseline_wait_s": before["wait_s"],
    }


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else round(now - before, 3)


def _malleable_job(id: int, name: str, facts: Facts) -> dict[str, Any]:
    last = accounting.lives(facts.records, id)[-1]
    view = facts.views.get(id, {})
    lost, missing = facts.steps[id] or (None, None)
    ends = [r.end for r in facts.records if r.end is not None]
    held = accounting.held(facts.records, id, _units(facts), (facts.started, max(ends, default=facts.started)))
    useful = facts.useful.get(id)
    return {
        "id": id,
        "name": name,
        "state": last.state,
        "exit_code": int(last.exit_code.split(":")[0]),
        "rescales": view.get("rescales"),
        "steps_lost": lost,
        "steps_missing": missing,
        "held_node_seconds": round(held, 1),
        "useful_node_seconds": None if useful is None else round(useful, 1),
        "useful_ratio": _ratio(useful, held),
    }


# The largest difference of two sums from the same accounting, because times are whole seconds.
SAME = 0.01


def problems(document: Mapping[str, Any]) -> list[str]:
    """The failures of the run, one sentence each."""
    found = []
    held = sum(job["held_node_seconds"] for job in document["malleable_jobs"])
    reported = document.get("reported_node_seconds")
    if reported is not None and abs(reported - held) > SAME * held:
        found.append(f"infill report has {reported:.0f} node-seconds of malleable jobs, accounting has {held:.0f}")
    for job in document["malleable_jobs"]:
        if (job["state"], job["exit_code"]) != ("COMPLETED", 0):
            found.append(f"malleable job {job['id']} ({job['name']}) ended {job['state']}, exit {job['exit_code']}")
        if job["steps_lost"] is None:
            found.append(f"malleable job {job['id']} ({job['name']}) left no log of its steps")
        elif job["steps_missing"]:
            found.append(f"malleable job {job['id']} ({job['name']}) skipped {job['steps_missing']} steps")
    for job in document["main_jobs"]:
        if job["start_delay_s"] is None:
            found.append(f"main job {job['id']} ({job['name']}) never started")
    return found


def line(elapsed: float, status: dict[str, Any] | None, ids: Mapping[int, str]) -> str:
    """The present state, in one line."""
    clock = f"{elapsed:4.0f} s"
    if status is None:
        return f"{clock}  the daemon does not answer"
    kinds = [node["kind"] for node in status["nodes"]]
    views = {view["job"]: view for view in status["jobs"]}
    jobs = [_job_words(name, views.get(id)) for id, name in ids.items()]
    main = sum(kind == "busy" for kind in kinds)
    return f"{clock}  main {main} nodes, infill {kinds.count('held')}, idle {kinds.count('gap')}   {'   '.join(jobs)}"


def _job_words(name: str, view: dict[str, Any] | None) -> str:
    if view is None:
        return f"{name} -"
    step = "" if view.get("step") is None else f" step {view['step']}"
    return f"{name} {view['state']} on {len(view['nodes'])}{step}"


def text(document: Mapping[str, Any]) -> str:
    """The document as text."""
    return "\n".join([*_harvest_words(document), "", *_main_words(document), "", *_malleable_words(document)])


def _harvest_words(document: Mapping[str, Any]) -> list[str]:
    unit = document["unit"]
    return [
        f"Slurm {document['slurm']}; all times from its accounting (sacct), in whole seconds",
        "",
        f"gaps over {accounting.SHORT_GAP_SECS} s   {document['gap_node_seconds']:.0f} {unit}-seconds left idle by the "
        f"main queue, in {document['gaps']} gaps and {document['period_s']:.0f} s",
        f"harvested        {document['harvested_node_seconds']:.0f} {unit}-seconds, {document['harvest_ratio']:.0%}",
    ]


def _main_words(document: Mapping[str, Any]) -> list[str]:
    rows = [f"main job     {document['unit']}s   waited   without infill   delay   by the script's clock"]
    for job in document["main_jobs"]:
        rows.append(
            f"{job['name']:<12} {job['nodes']:>{len(document['unit']) + 1}}   {_number(job['wait_s']):>6}   {_number(job['baseline_wait_s']):>14}"
            f"   {_number(job['start_delay_s']):>5}   {_number(job['script_start_delay_s'], 2):>21}"
        )
    median, most = document["main_delay_median_s"], document["main_delay_max_s"]
    return [*rows, f"start delay: median {_number(median, 1)} s, at most {_number(most)} s"]


def _malleable_words(document: Mapping[str, Any]) -> list[str]:
    rows = ["malleable job        state       exit   rescales   steps lost   useful"]
    for job in document["malleable_jobs"]:
        rows.append(
            f"{job['id']:<5} {job['name']:<14} {job['state']:<11} {job['exit_code']:>4}   "
            f"{_number(job['rescales']):>8}   {_number(job['steps_lost']):>10}   {_percent(job['useful_ratio']):>6}"
        )
    useful = _percent(document["useful_ratio"])
    return [*rows, f"useful: seconds in which a {document['unit']} made steps, of those in which it was held; of all: {useful}"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
