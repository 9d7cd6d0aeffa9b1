"""The main queue's load: reads the list and submits each job at its time."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence

import cluster

# The users that submit the main jobs, in turn.
USERS = ("alice", "bob")


@dataclasses.dataclass(frozen=True)
class MainJob:
    """One line of load.tsv."""

    name: str
    submit_secs: float
    nodes: int
    run_secs: int
    limit_mins: int


@dataclasses.dataclass(frozen=True)
class Submitted:
    """A main job that Slurm has accepted."""

    job: MainJob
    id: int
    at: float


def parse(text: str) -> list[MainJob]:
    """Parses the jobs in `text`, which must be ordered by their time of submission."""
    jobs = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        name, submit, nodes, run, limit = words
        jobs.append(MainJob(name, float(submit), int(nodes), int(run), int(limit)))
    if any(a.submit_secs > b.submit_secs for a, b in zip(jobs, jobs[1:])):
        raise ValueError("the load is not ordered by submit")
    return jobs


def script(job: MainJob, directory: pathlib.Path) -> str:
    """The batch script: records its start to the millisecond, then holds its nodes."""
    return f"#!/bin/bash\ndate +%s.%N >{directory}/$SLURM_JOB_ID.start\nexec sleep {job.run_secs}\n"


def submit_all(
    jobs: Sequence[MainJob],
    origin: float,
    directory: pathlib.Path,
    is_cancelled: Callable[[], bool],
    shared: bool = False,
) -> list[Submitted]:
    """Submits every job `submit_secs` after `origin` (time.time()). Returns when the last job is submitted.

    Where nodes are `shared`, a job has one GPU instead of each node.
    """
    done = []
    for number, job in enumerate(jobs):
        while (wait := origin + job.submit_secs - time.time()) > 0 and not is_cancelled():
            time.sleep(min(wait, 0.5))
        if is_cancelled():
            break
        done.append(_submit(job, USERS[number % len(USERS)], directory, shared))
    return done


def _submit(job: MainJob, user: str, directory: pathlib.Path, shared: bool) -> Submitted:
    at = time.time()
    size = ["-n", str(job.nodes), "--gpus-per-task=1"] if shared else ["-N", str(job.nodes)]
    options = ["-p", "main", "-J", job.name, *size, "-t", str(job.limit_mins), "-o", "/dev/null"]
    return Submitted(job, cluster.sbatch(user, options, script(job, directory)), at)
