#!/usr/bin/env python3
"""Pretends to train: its speed follows a scaling curve, its stops and starts take the time that it is told.

Needs nothing but Python, and next to no processor time. Rank 0 counts the steps and keeps the checkpoint, which also
tells the other ranks when the training is done.
"""

import argparse
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "contrib", "python"))
try:
    import infill
except ImportError:
    infill = None

LOOK_SECS = 0.1


def parse_curve(text):
    return sorted((int(nodes), float(rate)) for nodes, rate in (item.split(":") for item in text.split(",")))


def rate_at(curve, nodes):
    """Samples a second: linear between the points, in proportion below the first, flat above the last."""
    if nodes <= curve[0][0]:
        return curve[0][1] * nodes / curve[0][0]
    for (a, ra), (b, rb) in zip(curve, curve[1:]):
        if nodes <= b:
            return ra + (rb - ra) * (nodes - a) / (b - a)
    return curve[-1][1]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--curve", type=parse_curve, default=parse_curve("1:10,2:19,4:35,8:60"), help="NODES:RATE,…")
    p.add_argument("--batch", type=float, default=10, help="samples of a step, at any size")
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--total-samples", type=float, help="end after so many samples instead of --steps")
    p.add_argument("--checkpoint", default="paced.json")
    p.add_argument("--log", help="one line a step, appended")
    p.add_argument("--start-secs", type=float, default=0.0, help="time before the first step")
    p.add_argument("--checkpoint-secs", type=float, default=0.0, help="time to save")
    p.add_argument("--drift", type=float, default=1.0, help="factor on the speed in the second half")
    p.add_argument("--ignore-signal", action="store_true", help="never save when asked to")
    p.add_argument("--fail-at", type=int, help="fail before this step")
    p.add_argument("--fail-rank", type=int, default=0)
    p.add_argument("--fail-code", type=int, default=3)
    p.add_argument("--fail-once", help="fail only if this file does not exist; it is made then")
    return p.parse_args()


class Asked(Exception):
    """Somebody wants us to save and exit."""


class Paced:
    def __init__(self, args):
        self.args, self.asked = args, False
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if args.ignore_signal else self.ask)
        self.steps = args.steps
        if args.total_samples is not None:
            self.steps = -int(-args.total_samples // args.batch)
        self.step = self.load().get("step", 0)

    def ask(self, *_):
        self.asked = True

    def wait_until(self, end):
        while (rest := end - time.monotonic()) > 0:
            if self.asked:
                raise Asked
            time.sleep(min(rest, LOOK_SECS))

    def load(self):
        try:
            with open(self.args.checkpoint) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def save(self):
        part = self.args.checkpoint + ".part"
        with open(part, "w") as file:
            json.dump({"step": self.step, "samples": self.step * self.args.batch, "done": self.step >= self.steps}, file)
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

    def lead(self):
        rate = rate_at(self.args.curve, self.world)
        print(f"step={self.step} world={self.world} truth={rate:g} samples/s", flush=True)
        log = open(self.args.log, "a", buffering=1) if self.args.log else None
        generation = int(os.environ.get("INFILL_GENERATION", 0))
        end = time.monotonic()
        while self.step < self.steps:
            self.fail_if_planted(self.step + 1)
            factor = self.args.drift if 2 * self.step >= self.steps else 1.0
            # From the planned end of the last step, so that no time is lost between steps.
            end += self.args.batch / (rate * factor)
            self.wait_until(end)
            self.step += 1
            if infill:
                infill.report(self.args.batch, self.step)
            if log:
                log.write(json.dumps({"step": self.step, "generation": generation, "world": self.world}) + "\n")

    def follow(self):
        while not self.load().get("done"):
            self.fail_if_planted(self.load().get("step", 0) + 1)
            self.wait_until(time.monotonic() + LOOK_SECS)

    def run(self):
        try:
            if self.step < self.steps:
                self.wait_until(time.monotonic() + self.args.start_secs)
            self.lead() if self.rank == 0 else self.follow()
        except Asked:
            if self.rank == 0:
                time.sleep(self.args.checkpoint_secs)
        if self.rank == 0:
            self.save()
            print(f"{'done with' if self.step >= self.steps else 'saved at'} step={self.step}", flush=True)


if __name__ == "__main__":
    Paced(parse_args()).run()
