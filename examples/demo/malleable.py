"""The malleable jobs of the demo: plain sbatch, in a directory of their own each."""

import pathlib
import re
import shutil

import cluster

JOBS = pathlib.Path(__file__).resolve().parent / "jobs"

# Name (and script) of each job, and whose it is.
OWNERS = {"spirals": "alice", "wide": "bob", "narrow": "alice"}

STEP = re.compile(r'"step": *(\d+)')


def submit(work: pathlib.Path) -> dict[int, str]:
    """Submits all of them; their names by job id."""
    ids = {}
    for name, user in OWNERS.items():
        directory = work / name
        directory.mkdir()
        shutil.chown(directory, user, user)
        ids[cluster.sbatch(user, [str(JOBS / f"{name}.sbatch")], cwd=str(directory))] = name
    return ids


def repeated_and_missing(log: str) -> tuple[int, int]:
    """How many steps of a log (a line of JSON each step) were done again, and how many up to the last are not there."""
    steps = [int(step) for step in STEP.findall(log)]
    distinct = set(steps)
    return len(steps) - len(distinct), max(distinct, default=0) - len(distinct)


def steps(name: str, work: pathlib.Path) -> tuple[int, int] | None:
    """`repeated_and_missing` of a job's own log, if there is one."""
    try:
        log = (work / name / "steps.jsonl").read_text(errors="replace")
    except FileNotFoundError:
        return None
    return repeated_and_missing(log) if STEP.search(log) else None
