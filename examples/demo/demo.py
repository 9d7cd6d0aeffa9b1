"""The demo's driver. Runs as root inside the cluster; demo.sh starts it there.

    demo.py baseline --work DIR --out FILE                    the load alone
    demo.py harvest  --work DIR --out FILE --baseline FILE    the load, with malleable jobs in its gaps

With --shared, jobs have GPUs of nodes that they share.
"""

import argparse
import json
import math
import pathlib
import sys
import threading
import time
from collections.abc import Sequence

import accounting
import cluster
import load
import malleable
import summary

HERE = pathlib.Path(__file__).resolve().parent

# The load takes about four minutes, and the malleable jobs end within a minute after it.
DEADLINE_SECS = 600

# Time between two lines about the present state, seconds.
TELL_SECS = 10

# slurmctld reports a job's end to slurmdbd at once, but requests to slurmdbd go through a queue.
BOOKS_SECS = 30


class Failed(Exception):
    """The demo failed; the text says how."""


class Run:
    """One run of the load: submits it from a thread, and waits for it in the main thread."""

    def __init__(self, jobs: Sequence[load.MainJob], work: pathlib.Path, shared: bool) -> None:
        self.jobs = jobs
        self.work = work
        self.shared = shared
        # Every run starts at the same fraction of a second, because the accounting stores whole seconds.
        self.origin = math.ceil(time.time()) + 0.1
        self.deadline = self.origin + DEADLINE_SECS
        self.submitted: list[load.Submitted] = []
        self.error: Exception | None = None
        # sacct's output, kept so that everyone can check the sums.
        self.text = ""
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)

    def start(self) -> None:
        """Starts the submissions."""
        self._thread.start()

    def _submit(self) -> None:
        try:
            self.submitted = load.submit_all(self.jobs, self.origin, self.work, self._cancelled.is_set, self.shared)
        except cluster.CommandFailed as error:
            self.error = error

    def wait(self, others: Sequence[int] = (), watch: "Watch | None" = None) -> None:
        """Waits until all main jobs and the `others` have ended."""
        try:
            self._wait(others, watch)
        finally:
            self._cancelled.set()

    def _wait(self, others: Sequence[int], watch: "Watch | None") -> None:
        while True:
            if self.error:
                raise Failed(f"the load could not be submitted: {self.error}")
            if watch:
                watch.look()
            loaded = not self._thread.is_alive()
            active = cluster.pending_or_running([*(s.id for s in self.submitted), *others])
            if loaded and not active:
                return
            if time.time() >= self.deadline:
                raise Failed(f"after {DEADLINE_SECS} s, these jobs have not ended: {active}")
            time.sleep(1)

    def complete_records(self, others: Sequence[int] = ()) -> list[accounting.Record]:
        """The accounting of this run, once it has the end of every job."""
        ids = {s.id for s in self.submitted} | set(others)
        records: list[accounting.Record] = []

        def complete() -> bool:
            nonlocal records
            self.text = cluster.sacct(self.origin - 60)
            records = accounting.parse(self.text)
            return all((mine := accounting.lives(records, id)) and mine[-1].end is not None for id in ids)

        if not cluster.wait_for(complete, time.time() + BOOKS_SECS):
            raise Failed(f"sacct does not have the end of all jobs after {BOOKS_SECS} s")
        (self.work / "sacct.txt").write_text(self.text)
        return accounting.by_gpu(records, summary.GPUS_A_NODE) if self.shared else records


class Watch:
    """Prints the present state, and keeps the daemon's latest answer about each job."""

    def __init__(self, origin: float, ids: dict[int, str]) -> None:
        self.origin = origin
        self.ids = ids
        self.views: dict[int, dict] = {}
        self._last_line_at = 0.0

    def look(self) -> None:
        """Asks the daemon once; prints a line when one is due."""
        status = cluster.infill_status()
        for view in (status or {}).get("jobs", []):
            self.views[view["job"]] = view
        if time.time() - self._last_line_at >= TELL_SECS:
            self._last_line_at = time.time()
            print(summary.line(time.time() - self.origin, status, self.ids), flush=True)


def baseline(jobs: Sequence[load.MainJob], work: pathlib.Path, shared: bool) -> dict:
    """Runs the load alone and measures how long each job waits."""
    run = Run(jobs, work, shared)
    run.start()
    print(f"running the {len(jobs)} main jobs without infill, for comparison (about 4 minutes)", flush=True)
    run.wait()
    waits = summary.waits(run.submitted, run.complete_records(), work)
    return {"schema": 1, "slurm": cluster.slurm_version(), "jobs": waits}


def harvest(jobs: Sequence[load.MainJob], work: pathlib.Path, before: dict, shared: bool) -> dict:
    """Runs the load together with malleable jobs."""
    ids = malleable.submit(work, shared)
    run = Run(jobs, work, shared)
    run.start()
    print(f"submitted {len(ids)} malleable jobs ({', '.join(ids.values())}) and a main queue of {len(jobs)} jobs")
    watch = Watch(run.origin, ids)
    run.wait(list(ids), watch)
    records = run.complete_records(list(ids))
    facts = summary.Facts(
        slurm=cluster.slurm_version(),
        started=run.origin,
        shared=shared,
        records=records,
        waits=summary.waits(run.submitted, records, work),
        before=before["jobs"],
        malleable=ids,
        views=watch.views,
        steps={id: malleable.steps(name, work) for id, name in ids.items()},
        useful={id: malleable.useful(name, work) for id, name in ids.items()},
    )
    document = summary.document(facts)
    if not shared:
        # The administrator's own report must show the same for this run.
        end = max(record.end or 0.0 for record in records) + 1
        document["reported_node_seconds"] = cluster.infill_report(run.origin, end)["node_hours"] * 3600
    return document


def main() -> int:
    """Runs the command line; returns the exit code."""
    args = _arguments()
    jobs = load.parse((HERE / "load.tsv").read_text())
    args.work.mkdir(mode=0o1777, parents=True, exist_ok=True)
    # The umask has restricted the mode.
    args.work.chmod(0o1777)
    try:
        if args.what == "baseline":
            document = baseline(jobs, args.work, args.shared)
        else:
            document = harvest(jobs, args.work, json.loads(args.baseline.read_text()), args.shared)
    except (Failed, cluster.CommandFailed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    args.out.write_text(json.dumps(document, indent=1) + "\n")
    if args.what == "baseline":
        return 0
    print(summary.text(document))
    problems = summary.problems(document)
    for problem in problems:
        print(f"demo: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["baseline", "harvest"])
    parser.add_argument("--work", type=pathlib.Path, required=True, help="a directory that all nodes see")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="file for the result, as JSON")
    parser.add_argument("--baseline", type=pathlib.Path, help="the result of `baseline`")
    parser.add_argument("--shared", action="store_true", help="count GPUs of shared nodes, not nodes")
    args = parser.parse_args()
    if args.what == "harvest" and not args.baseline:
        parser.error("harvest needs --baseline")
    return args


if __name__ == "__main__":
    sys.exit(main())
