#!/usr/bin/env python3
"""Follows `infill doctor --plan` on a cluster that knows nothing of infill, and then takes every step back.

It runs as root on the controller, and executes what the plan's JSON says, and nothing else. examples/first_hour.sh starts
it on a cluster of its own. It ends with an error if a check fails, if a malleable job ran on another node than the canary
nodes, or if the site is not as before at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# The longest times that are promised, in seconds.
MOST_TO_FIGURE = 600
MOST_TO_CANARY = 3600
# How long it observes unless somebody asks for more. What is longer than that counts in no promise.
OBSERVE_SECS = 60
# What a report of `infill observe` may need after its end.
REPORT_SECS = 60
# How long a check may need until it prints what it should.
CHECK_SECS = 90.0
# slurmrestd is in /usr/sbin, which Debian leaves out of the PATH of users.
PATH = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin"
# More steps than any plan has: the plan must come to an end.
MOST_STEPS = 40


class FirstHourError(Exception):
    """What went wrong, as a sentence."""


def shell(command: str, user: str | None = None, secs: float = 120.0) -> str:
    """Runs a command, as root unless a user is named, and returns what it printed. Its exit status counts."""
    words = ["bash", "-c", command]
    if user is not None:
        words = ["setpriv", "--reuid", user, "--regid", user_group(user), "--clear-groups", "--reset-env", "env", PATH, *words]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=secs, check=False)
    if done.returncode != 0:
        raise FirstHourError(f"{command}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def user_group(user: str) -> str:
    """The number of a user's group."""
    return subprocess.run(["id", "-g", user], capture_output=True, text=True, check=True).stdout.strip()


def plan(words: list[str]) -> dict[str, Any]:
    """The plan as it is now."""
    document: dict[str, Any] = json.loads(shell(" ".join(["infill doctor --plan --json", *words])))
    if document["schema"] != 1:
        raise FirstHourError(f"the plan has schema {document['schema']}, and this script knows 1")
    return document


def run_commands(commands: list[dict[str, str]], user: str) -> None:
    """Runs the commands of a step in order."""
    for command in commands:
        if command["on"] != "this machine":
            raise FirstHourError(f"the plan names another machine: {command}")
        print(f"    {command['command']}".replace("\n", "\n    "), flush=True)
        shell(command["command"], user if command["as"] == "user" else None)


def await_check(check: dict[str, Any]) -> None:
    """Waits until a step's check prints what the plan says."""
    end = time.monotonic() + CHECK_SECS
    while True:
        words = ["bash", "-c", check["command"]]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CHECK_SECS, check=False)
        missing = [text for text in check["prints"] if text not in done.stdout]
        if not missing:
            return
        if time.monotonic() > end:
            raise FirstHourError(f"{check['command']} lacks {missing}: {done.stdout}{done.stderr}")
        time.sleep(0.5)


def site_state() -> dict[str, str]:
    """What infill must leave as it was."""
    commands = {
        "slurm.conf": "cat /etc/slurm/slurm.conf",
        "folder": "ls -A /etc/slurm",
        "settings": "scontrol show config | grep -v ' as of \\|NEXT_JOB_ID\\|HASH_VAL\\|BOOT_TIME'",
        "partitions": "scontrol -o show partition",
        "QOSes": "sacctmgr -nP show qos format=name,priority,preempt,preemptmode,flags,gracetime,usagefactor",
        "associations": "sacctmgr -nP show assoc format=cluster,account,user,qos,defaultqos",
        "users": "sacctmgr -nP show user format=user,adminlevel,defaultaccount; getent passwd; getent group",
        "infill's files": "ls -d /etc/infill /var/lib/infill /run/infill; cat /etc/infill/infill.toml; true",
    }
    return {name: shell(command) for name, command in commands.items()}


def nodes_used() -> set[str]:
    """All nodes on which a malleable job ever ran, by Slurm's accounting."""
    lists = shell("sacct -nPXaD -r infill -S now-2hours -E now --format=nodelist").split()
    known = sorted(set(lists) - {"None"})
    return set(shell(f"scontrol show hostnames '{','.join(known)}'").split()) if known else set()


def observe(secs: int) -> float:
    """Observes as nobody until the first figure. Returns the seconds that it took."""
    begun = time.monotonic()
    text = shell(f"infill observe --partition main --every 1 --for {secs} --json", "nobody", secs + REPORT_SECS)
    report = json.loads(text)
    if "held_node_hours" not in report:
        raise FirstHourError(f"observe gave no figure: {text}")
    print(f"observed as nobody: {report['held_node_hours']:.3f} node-hours would have been harvested", flush=True)
    return time.monotonic() - begun


def follow(words: list[str], user: str) -> list[str]:
    """Follows the plan until only later steps are left. Returns the steps that it did, in order."""
    followed: list[str] = []
    for _ in range(MOST_STEPS):
        document = plan(words)
        if document["complete"]:
            return followed
        step = next(step for step in document["steps"] if step["state"] not in ("done", "later"))
        if step["state"] != "open":
            raise FirstHourError(f"the plan cannot go on: {step}")
        print(f"{step['id']}: {step['title']}", flush=True)
        run_commands(step["commands"], user)
        await_check(step["check"])
        after = {other["id"]: other["state"] for other in plan(words)["steps"]}
        if after[step["id"]] != "done":
            raise FirstHourError(f"the plan does not see that {step['id']} is done: {after}")
        followed.append(step["id"])
    raise FirstHourError("the plan has no end")


def await_canary(canary: set[str]) -> set[str]:
    """Waits until a malleable job has a wing, and returns their nodes: two nodes, or one whose GPUs are lent."""
    end = time.monotonic() + CHECK_SECS
    while time.monotonic() < end:
        nodes = shell("squeue -h -p infill -t R -o %N").split()
        if len(nodes) >= 2 and set(nodes) <= canary:
            return set(nodes)
        time.sleep(1.0)
    raise FirstHourError(f"no two malleable jobs run on {sorted(canary)}: {shell('squeue -a; infill status')}")


def try_without_authorities() -> None:
    """A minimal system trusts no certificate authority. Plain HTTP and the socket must work there all the same."""
    without = "env SSL_CERT_FILE=/no/such SSL_CERT_DIR=/no/such"
    said = shell(f"runuser -u infill -- {without} infill doctor 2>/dev/null")
    for wanted in ("answers by REST", "answers at http://"):
        if wanted not in said:
            raise FirstHourError(f"without certificate authorities: {said}")


def try_main_job(user: str) -> float:
    """A main job that needs all nodes. Returns the seconds until it ran."""
    begun = time.monotonic()
    nodes = shell("sinfo -h -p main -o %D").strip()
    shell(f"cd /tmp && sbatch --wait -p main -N {nodes} --output=/dev/null --wrap true", user)
    return time.monotonic() - begun


def compare(before: dict[str, str]) -> None:
    """Checks that the site is as it was."""
    after = site_state()
    changed = [name for name in before if before[name] != after[name]]
    if changed:
        parts = [f"{name}\n--- before\n{before[name]}\n--- after\n{after[name]}" for name in changed]
        raise FirstHourError("the way back left traces: " + "\n".join(parts))


def main() -> int:
    """The whole way there and back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observe", type=int, default=OBSERVE_SECS, metavar="SECS", help=f"how long to observe ({OBSERVE_SECS})")
    parser.add_argument("--user", default="alice", help="the user of test jobs (alice)")
    parser.add_argument("--installed-secs", type=float, default=0.0, help="what the installation took")
    parser.add_argument("choices", nargs="*", help="decisions: --preempt partition …, after --")
    args = parser.parse_args()
    begun = time.monotonic()
    longer = max(0, args.observe - OBSERVE_SECS)
    most_to_figure, most_to_canary = MOST_TO_FIGURE + longer, MOST_TO_CANARY + longer
    try:
        before = site_state()
        figure_secs = observe(args.observe) + args.installed_secs
        print(f"first figure after {figure_secs:.0f} s (at most {most_to_figure})", flush=True)
        canary = set(shell(f"scontrol show hostnames '{plan(args.choices)['choices']['canary']}'").split())
        followed = follow(args.choices, args.user)
        nodes = await_canary(canary)
        try_without_authorities()
        canary_secs = time.monotonic() - begun + args.installed_secs
        print(f"malleable jobs on {sorted(nodes)} after {canary_secs:.0f} s (at most {most_to_canary})", flush=True)
        print(f"a main job on all nodes ended after {try_main_job(args.user):.0f} s", flush=True)
        if not nodes_used() <= canary:
            raise FirstHourError(f"malleable jobs ran on {sorted(nodes_used())}, and not only on {sorted(canary)}")
        if figure_secs > most_to_figure or canary_secs > most_to_canary:
            raise FirstHourError("it took too long")
        back_begun = time.monotonic()
        # The ways back as a finished plan names them, which is what an administrator has months later.
        ways_back = {step["id"]: step["undo"] for step in plan(args.choices)["steps"]}
        for name in reversed(followed):
            run_commands(ways_back[name], args.user)
        compare(before)
        print(f"{len(followed)} steps undone in {time.monotonic() - back_begun:.0f} s: the site is as before", flush=True)
    except (FirstHourError, subprocess.TimeoutExpired) as error:
        print(f"first_hour: {error}", file=sys.stderr)
        log = Path("/run/infill/daemon.log")
        if log.exists():
            print(f"---- {log}\n{log.read_text()[-4000:]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
