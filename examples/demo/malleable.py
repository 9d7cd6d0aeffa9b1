"""The malleable jobs of the demo: plain sbatch, each in a separate directory."""

import itertools
import json
import pathlib
import re
import shutil
import statistics

import cluster

JOBS = pathlib.Path(__file__).resolve().parent / "jobs"

# Name (and script) of each job, and its user.
OWNERS = {"spirals": "alice", "wide": "bob", "narrow": "alice"}

SIZES = re.compile(r"^#SBATCH --nodes=(\S+)$", re.MULTILINE)

STEP = re.compile(r'"step": *(\d+)')

# A step that takes this many times longer than usual does not count with its whole length.
LONG_STEP = 2.0


def submit(work: pathlib.Path, shared: bool = False) -> dict[int, str]:
    """Submits all jobs; returns their names by job id. Where nodes are `shared`, they ask for GPUs instead of nodes."""
    ids = {}
    for name, user in OWNERS.items():
        directory = work / name
        directory.mkdir()
        shutil.chown(directory, user, user)
        script = JOBS / f"{name}.sbatch"
        options = _in_gpus(script.read_text()) if shared else []
        ids[cluster.sbatch(user, [*options, str(script)], cwd=str(directory))] = name
    return ids


def _in_gpus(script: str) -> list[str]:
    """The options of sbatch with which a script asks for GPUs instead of nodes."""
    sizes = SIZES.search(script)
    if not sizes:
        raise ValueError("the script does not say --nodes")
    return ["--nodes=1", f"--comment=infill:gpus={sizes[1]}"]


def repeated_and_missing(log: str) -> tuple[int, int]:
    """The numbers of repeated steps in a log (one line of JSON per step), and of steps missing before its last one."""
    steps = [int(step) for step in STEP.findall(log)]
    distinct = set(steps)
    return len(steps) - len(distinct), max(distinct, default=0) - len(distinct)


def _log(name: str, work: pathlib.Path) -> str | None:
    """A job's own log; None if it has no steps."""
    try:
        log = (work / name / "steps.jsonl").read_text(errors="replace")
    except FileNotFoundError:
        return None
    return log if STEP.search(log) else None


def steps(name: str, work: pathlib.Path) -> tuple[int, int] | None:
    """`repeated_and_missing` of a job's own log; None without a log."""
    log = _log(name, work)
    return None if log is None else repeated_and_missing(log)


def useful_node_seconds(log: str) -> float:
    """Node-seconds of useful steps, from a log with `step`, `time`, `world` and `generation`.

    The first step of a generation (or of a membership within it) counts as a usual one. The log does not tell how
    long the nodes were there before it, and that time was no use. A repeated step counts once.
    """
    lines = [json.loads(line) for line in log.splitlines() if STEP.search(line)]
    secs = {}
    for _, group in itertools.groupby(lines, key=lambda line: (line["generation"], line.get("membership"))):
        steps = list(group)
        lasted = [b["time"] - a["time"] for a, b in itertools.pairwise(steps)]
        if lasted:
            usual = statistics.median(lasted)
            for step, took in zip(steps, [usual, *lasted]):
                secs[step["step"]] = step["world"] * min(took, LONG_STEP * usual)
    return sum(secs.values())


def useful(name: str, work: pathlib.Path) -> float | None:
    """`useful_node_seconds` of a job's own log; None without a log."""
    log = _log(name, work)
    try:
        return None if log is None else useful_node_seconds(log)
    except (ValueError, KeyError):
        return None
