#!/usr/bin/env python3
"""Pretends to train: its speed follows a scaling curve, and its stops and starts take given times.

Needs only Python, and almost no processor time. Rank 0 counts the steps and keeps the checkpoint, which also shows
the other ranks when the training is done. It prints what its starts and stops have cost, so that measurements of
others can be compared with the truth.
"""

import argparse
import fnmatch
import json
import math
import os
import random
import signal
import socket
import sys
import time

LOOK_SECS = 0.1


def parse_curve(text):
    return sorted((int(nodes), float(rate)) for nodes, rate in (item.split(":") for item in text.split(",")))


def parse_event(text):
    at, value = text.split(":")
    return float(at), float(value)


def rate_at(curve, nodes):
    """Samples a second: linear between the points, in proportion below the first, flat above the last."""
    if nodes <= curve[0][0]:
        return curve[0][1] * nodes / curve[0][0]
    for (a, ra), (b, rb) in zip(curve, curve[1:]):
        if nodes <= b:
            return ra + (rb - ra) * (nodes - a) / (b - a)
    return curve[-1][1]


def parse_plans(path):
    """Reads the curves of execution plans: {PLAN: {NODES: CURVE}}, with a pattern of node names.

    The curve `memory` means that the plan does not fit on these nodes.
    """
    with open(path) as file:
        return {
            plan: [(nodes, None if curve == "memory" else parse_curve(curve)) for nodes, curve in curves.items()]
            for plan, curves in json.load(file).items()
        }


def curve_of(plans, plan, node):
    """The curve of this plan on nodes like this one."""
    for pattern, curve in plans.get(plan, []):
        if fnmatch.fnmatch(node, pattern):
            return curve
    raise SystemExit(f"no curve of plan {plan!r} on {node!r}")


def parse_leaves(text):
    return text.split(";")


def crosses(leaves, nodes):
    """Whether these nodes are on several leaves. Each leaf is a pattern of node names."""
    on = {next((i for i, leaf in enumerate(leaves) if fnmatch.fnmatch(node, leaf)), node) for node in nodes}
    return len(on) > 1


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--curve", type=parse_curve, default=parse_curve("1:10,2:19,4:35,8:60"), help="NODES:RATE,…")
    p.add_argument("--plans", type=parse_plans, metavar="FILE", help="curves by execution plan and node, as JSON")
    p.add_argument("--leaves", type=parse_leaves, default=[], metavar="NODES;NODES;…",
                   help="nodes of each leaf switch, by patterns of their names")  # fmt: skip
    p.add_argument("--spread", type=float, default=1.0, metavar="FACTOR",
                   help="factor on the time of steps on nodes of several leaves")  # fmt: skip
    p.add_argument("--batch", type=float, default=10, help="samples of a step, at any size")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--total-samples", type=float, help="end after this many samples, instead of --steps")
    p.add_argument("--tell-total", action="store_true", help="tell infill how many steps there will be")
    p.add_argument("--checkpoint", default="paced.json")
    p.add_argument("--log", help="one line a step, appended")
    p.add_argument("--start-secs", type=float, default=0.0, help="time before the first step")
    p.add_argument("--save-secs", type=float, default=0.0, help="time to save")
    p.add_argument("--warmup-secs", type=float, default=0.0, help="after each start, so long slower")
    p.add_argument("--warmup-factor", type=float, default=2.0, help="by this factor")
    p.add_argument("--noise", type=float, default=0.0, help="sigma of the steps' log-normal factors, whose mean is 1")
    p.add_argument("--seed", type=int, default=1, help="of the noise")
    p.add_argument("--drift", type=parse_event, help="AT:FACTOR: slower by FACTOR after AT seconds of steps")
    p.add_argument("--stall", type=parse_event, help="AT:SECS: do nothing for SECS, once, after AT seconds of steps")
    p.add_argument("--ignore-signal", action="store_true", help="never save when asked to")
    p.add_argument("--fail-at", type=int, help="fail before this step")
    p.add_argument("--fail-rank", type=int, default=0)
    p.add_argument("--fail-code", type=int, default=3)
    p.add_argument("--fail-once", help="fail only if this file does not exist; it is made then")
    return p.parse_args()


def age_secs():
    """Seconds since this process began."""
    with open("/proc/self/stat") as file:
        began_ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / os.sysconf("SC_CLK_TCK")


def warm_secs(secs, since_start, warmup_secs, factor):
    """The time of a step of `secs` that begins `since_start` seconds after the first one."""
    left = max(0.0, warmup_secs - since_start)
    return secs * factor if secs * factor <= left else left + secs - left / factor


def noise(sigma, seed, step):
    """The log-normal factor on the time of a step, 1 in the mean. A rescale does not change it."""
    return math.exp(random.Random(f"{seed} {step}").gauss(-(sigma**2) / 2, sigma))


def tell(*words):
    """Sends the agent a datagram, if it listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.setblocking(False)
        try:
            to.sendto(" ".join(words).encode(), os.environ.get("INFILL_PROGRESS", ""))
        except OSError:
            pass


class Asked(Exception):
    """Handles the request to save and exit."""


class Paced:
    def __init__(self, args):
        self.args, self.asked_at, self.curve = args, None, args.curve
        self.plan = os.environ.get("INFILL_PLAN", "default")
        if args.plans:
            self.curve = curve_of(args.plans, self.plan, os.environ.get("SLURMD_NODENAME", ""))
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.generation = int(os.environ.get("INFILL_GENERATION", 0))
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if args.ignore_signal else self.ask)
        self.steps = args.steps
        if args.total_samples is not None:
            self.steps = -int(-args.total_samples // args.batch)
        # Seconds of steps so far, without warm-up and stall. Drift and stall depend on it.
        self.state = {"step": 0, "secs": 0.0, "stalled": False, **self.load()}
        self.warmup_lost_secs = 0.0

    def ask(self, *_):
        if self.asked_at is None:
            self.asked_at = time.monotonic()

    def wait_until(self, end):
        while (rest := end - time.monotonic()) > 0:
            if self.asked_at is not None:
                raise Asked
            time.sleep(min(rest, LOOK_SECS))

    def load(self):
        try:
            with open(self.args.checkpoint) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def save(self):
        step = self.state["step"]
        part = self.args.checkpoint + ".part"
        with open(part, "w") as file:
            json.dump({**self.state, "samples": step * self.args.batch, "done": step >= self.steps}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.args.checkpoint)

    def fail_if_planted(self, step):
        a = self.args
        if step != a.fail_at or self.rank != a.fail_rank:
            return
        if a.fail_once:
            if os.path.exists(a.fail_once):
                return
            open(a.fail_once, "w").close()
        print(f"failing before step {step}, as asked", file=sys.stderr, flush=True)
        os._exit(a.fail_code)

    def step_secs(self, rate):
        """The time of the next step after the warm-up."""
        a = self.args
        slower = a.drift[1] if a.drift and self.state["secs"] >= a.drift[0] else 1.0
        if a.leaves and crosses(a.leaves, os.environ.get("SLURM_JOB_NODELIST", "").split(",")):
            slower *= a.spread
        return a.batch / rate * noise(a.noise, a.seed, self.state["step"]) * slower

    def stall_secs(self):
        """The length of a stall now, seconds."""
        stall = self.args.stall
        if not stall or self.state["stalled"] or self.state["secs"] < stall[0]:
            return 0.0
        self.state["stalled"] = True
        return stall[1]

    def lead(self):
        a, state, rate = self.args, self.state, rate_at(self.curve, self.world)
        print(f"start: generation={self.generation} world={self.world} step={state['step']} rate={rate:g} "
              f"start_secs={age_secs():.3f} plan={self.plan}", flush=True)  # fmt: skip
        log = open(a.log, "a", buffering=1) if a.log else None
        begin = end = time.monotonic()
        while state["step"] < self.steps:
            self.fail_if_planted(state["step"] + 1)
            secs = self.step_secs(rate)
            slow = warm_secs(secs, end - begin, a.warmup_secs, a.warmup_factor)
            # Counted from the planned end of the last step, so that no time is lost between steps.
            end += slow + self.stall_secs()
            self.wait_until(end)
            self.tell_change(slow)
            state["step"] += 1
            state["secs"] += secs
            self.warmup_lost_secs += slow - secs
            total = [f"total={self.steps}"] if a.tell_total else []
            tell(f"samples={a.batch:g}", f"step={state['step']}", *total)
            if log:
                line = {"step": state["step"], "generation": self.generation, "world": self.world,
                        "time": time.time()}  # fmt: skip
                log.write(json.dumps(line) + "\n")

    def tell_change(self, first_secs):
        """Prints, after the first step, the time since the last generation was asked to stop, less this step."""
        asked_at = self.state.pop("asked_at", None)
        if asked_at is not None:
            print(f"change: generation={self.generation} world={self.world} "
                  f"change_secs={time.time() - asked_at - first_secs:.3f}", flush=True)  # fmt: skip

    def follow(self):
        while not self.load().get("done"):
            self.fail_if_planted(self.load().get("step", 0) + 1)
            self.wait_until(time.monotonic() + LOOK_SECS)

    def stop(self):
        """Saves, and prints what the stop and the start before it have cost."""
        begin = time.monotonic()
        if self.asked_at is not None:
            self.state["asked_at"] = time.time() - (begin - self.asked_at)
            time.sleep(self.args.save_secs)
        self.save()
        now, step = time.monotonic(), self.state["step"]
        if self.asked_at is not None:
            tell("samples=0", f"saved={now - begin:.6f}")
        print(f"{'done with' if step >= self.steps else 'saved at'} step={step} generation={self.generation} "
              f"stop_secs={now - (self.asked_at or now):.3f} save_secs={now - begin:.3f} "
              f"warmup_lost_secs={self.warmup_lost_secs:.3f}", flush=True)  # fmt: skip

    def run(self):
        if self.curve is None:
            print(f"OutOfMemoryError: plan {self.plan} does not fit here", file=sys.stderr, flush=True)
            sys.exit(1)
        try:
            if self.state["step"] < self.steps:
                self.wait_until(time.monotonic() + self.args.start_secs)
            self.lead() if self.rank == 0 else self.follow()
        except Asked:
            pass
        if self.rank == 0:
            self.stop()


if __name__ == "__main__":
    Paced(parse_args()).run()
