"""The cluster's commands: sbatch, squeue, sacct and infill. Runs as root inside the cluster."""

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

# Time limit for one command, seconds. slurmctld answers within milliseconds, a loaded machine within seconds.
COMMAND_SECS = 30

SACCT_FIELDS = "JobIDRaw,JobName,User,Partition,State,ExitCode,NodeList,AllocTRES,Submit,Start,End"


class CommandFailed(Exception):
    """A command of the cluster failed; the text names it and quotes its output."""


def run(command: list[str], user: str | None = None, stdin: str | None = None, cwd: str | None = None) -> str:
    """Runs `command`, as `user` if named, and returns its output."""
    if user:
        command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--reset-env", "--", *command]
    try:
        done = subprocess.run(
            command, input=stdin, cwd=cwd, capture_output=True, text=True, timeout=COMMAND_SECS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(command)}: no answer in {COMMAND_SECS} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise CommandFailed(f"{' '.join(command)}: exit {done.returncode}: {said}")
    return done.stdout


def sbatch(user: str, options: list[str], script: str | None = None, cwd: str = "/") -> int:
    """Submits a job as `user` and returns its id. The script comes from `options` or from `script`."""
    out = run(["sbatch", "--parsable", *options], user, script, cwd)
    return int(out.strip().split(";")[0])


def pending_or_running(ids: Iterable[int]) -> dict[int, str]:
    """The states of those of these jobs that have not ended."""
    wanted = set(ids)
    states = {}
    for line in run(["squeue", "-h", "-t", "all", "-o", "%A %T"]).splitlines():
        job, state = line.split()
        if int(job) in wanted and state in ACTIVE:
            states[int(job)] = state
    return states


ACTIVE = frozenset(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING RESIZING REQUEUED REQUEUE_HOLD SPECIAL_EXIT STAGE_OUT SIGNALING "
    "STOPPED".split()
)


def slurm_version() -> str:
    """Slurm's version, such as `24.11.5`."""
    return run(["slurmctld", "-V"]).split()[1]


def sacct(since: float) -> str:
    """sacct's output since then: all records of all jobs, times in seconds since 1970."""
    # -D: a requeued job has a record for each start, a shrunk one for each size.
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    command = ["sacct", "-a", "-D", "-X", "-P", "-n", "-S", start, "-o", SACCT_FIELDS]
    return run(["env", "SLURM_TIME_FORMAT=%s", *command])


def infill_status() -> dict[str, Any] | None:
    """`infill jobs --json`, or nothing while the daemon does not answer."""
    try:
        return json.loads(run(["infill", "jobs", "--json"], "infill"))
    except (CommandFailed, json.JSONDecodeError):
        return None


def infill_report(since: float, until: float) -> dict[str, Any]:
    """`infill report --json` of this period."""
    return json.loads(run(["infill", "report", "--since", str(int(since)), "--until", str(int(until)), "--json"]))


def wait_for(condition: Callable[[], bool], deadline: float, interval_secs: float = 1.0) -> bool:
    """Waits until `condition` holds; false if it does not hold by `deadline` (time.time())."""
    while not condition():
        if time.time() >= deadline:
            return False
        time.sleep(interval_secs)
    return True
