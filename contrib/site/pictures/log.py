#!/usr/bin/env python3
"""Prints the accounting of a made-up machine, as `sacct -aXP` prints it: 16 nodes and a day of jobs."""

from __future__ import annotations

import datetime
import random

NODES, DAYS = 16, 1
START = datetime.datetime(2026, 10, 5)
HEADER = "JobID|User|Account|Partition|Submit|Start|End|Timelimit|NNodes|NodeList|AllocTRES|State"


def moment(secs: float) -> str:
    """A time as Slurm prints it."""
    return (START + datetime.timedelta(seconds=round(secs))).isoformat()


def main() -> None:
    """First come, first served: a job waits until enough nodes are free, and so do all behind it."""
    random.seed(7)
    free_at = [0.0] * NODES
    print(HEADER)
    submit = started = 0.0
    for job in range(1, 2000):
        submit += random.expovariate(1 / 1500)
        if submit > DAYS * 86400:
            break
        size = random.choice([1, 1, 2, 2, 4, 4, 8, 12])
        secs = min(random.lognormvariate(8.3, 0.9), 6 * 3600)
        nodes = sorted(range(NODES), key=lambda node: free_at[node])[:size]
        start = started = max([submit, started, *(free_at[node] for node in nodes)])
        for node in nodes:
            free_at[node] = start + secs
        names = ",".join(f"n{node + 1}" for node in sorted(nodes))
        limit = datetime.timedelta(hours=int(secs // 3600) + 1)
        row = (job, f"u{job % 5}", "physics", "main", moment(submit), moment(start), moment(start + secs))
        print(
            "|".join(
                map(
                    str,
                    (
                        *row,
                        f"{limit.seconds // 3600:02}:00:00",
                        size,
                        names,
                        f"cpu={size * 64},node={size}",
                        "COMPLETED",
                    ),
                )
            )
        )


if __name__ == "__main__":
    main()
