"""A training job without training: counts steps, saves on the rescale signal, and logs events.

Rank 0 counts until --steps or until a file DIR/enough exists; the others wait for its end. Every event is one line of
JSON in DIR/events, so that the tests can tell which work was repeated, and which process ran where and when.
"""

import argparse
import fcntl
import json
import os
import pathlib
import signal
import socket
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dir", type=pathlib.Path, required=True)
parser.add_argument("--steps", type=int, default=10**9)
parser.add_argument("--step-secs", type=float, default=0.1)
parser.add_argument("--save-secs", type=float, default=0.0, help="how long saving takes after the signal")
parser.add_argument("--pipe", type=pathlib.Path, help="a lock file: rank 0 saves in turn with the ranks 0 of other jobs")
parser.add_argument("--ignore-signal", type=int, metavar="RANK", help="this rank ignores the signal")
parser.add_argument("--fail-rank", type=int, metavar="RANK", help="this rank fails at --fail-step")
parser.add_argument("--fail-node", metavar="NODE", help="nothing works on this node")
parser.add_argument("--fail-step", type=int, default=10)
parser.add_argument("--fail-code", type=int, default=3)
parser.add_argument("--fail-always", action="store_true", help="fail each time, not only once")
parser.add_argument("--garbage", action="store_true", help="send nonsense to the agent's socket at each step")
args = parser.parse_args()

RANK = int(os.environ["RANK"])
PLACE = {
    "generation": int(os.environ["INFILL_GENERATION"]),
    "rank": RANK,
    "world": int(os.environ["WORLD_SIZE"]),
    "node": os.environ.get("SLURMD_NODENAME", ""),
}
CHECKPOINT, STEP, DONE, FAILED, ENOUGH = (args.dir / n for n in ("checkpoint", "step", "done", "failed", "enough"))
# Periodic checkpoints are for workers that die. The signal's checkpoint is the one that counts.
SAVE_EVERY = 10
PIPE_TURN_SECS = 0.1
told = False


def note(event, **more):
    line = json.dumps({"event": event, "at": time.time(), **PLACE, **more}) + "\n"
    with open(args.dir / "events", "a", encoding="utf-8") as file:
        file.write(line)


def hear(_number, _frame):
    global told
    told = True


def write(path, value):
    new = path.with_suffix(".new")
    new.write_text(str(value), encoding="utf-8")
    new.rename(path)


def read(path):
    try:
        return int(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0


def tell(message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        try:
            to.sendto(message, os.environ["INFILL_PROGRESS"])
        except OSError as error:
            note("untold", error=str(error))


def talk_nonsense(step):
    for message in (
        os.urandom(64), b"", b"\0" * 3000, b"samples=nan step=-1 loss=inf", b"samples=1e999", b"samples=-5",
        b"step=99999999999999999999999999", b"samples=1 step=zwei loss=--", b"=" * 4000, b"x" * 60_000,
        b"samples=", b"\xff\xfe samples=1\n\n\nstep=\x00", json.dumps({"samples": step}).encode(),
    ):  # fmt: skip
        tell(message)


def maybe_fail(step):
    if RANK != args.fail_rank or step < args.fail_step or (FAILED.exists() and not args.fail_always):
        return
    FAILED.touch()
    note("fail", step=step)
    sys.exit(args.fail_code)


def save_through_pipe():
    left = args.save_secs
    with open(args.pipe, "a", encoding="utf-8") as pipe:
        while left > 0:
            fcntl.flock(pipe, fcntl.LOCK_EX)
            time.sleep(PIPE_TURN_SECS)
            fcntl.flock(pipe, fcntl.LOCK_UN)
            left -= PIPE_TURN_SECS
            # Lets another job have its turn.
            time.sleep(PIPE_TURN_SECS / 10)


def save(step):
    if args.pipe is None:
        time.sleep(args.save_secs)
    elif RANK == 0:
        save_through_pipe()
    if RANK == 0:
        write(CHECKPOINT, step)
    note("stop", step=step)
    sys.exit(0)


def count():
    step = read(CHECKPOINT)
    note("start", step=step)
    while step < args.steps and not ENOUGH.exists():
        if told:
            save(step)
        time.sleep(args.step_secs)
        step += 1
        note("step", step=step)
        write(STEP, step)
        tell(f"samples={PLACE['world']} step={step} loss={1 / step}".encode())
        if args.garbage:
            talk_nonsense(step)
        if step % SAVE_EVERY == 0:
            write(CHECKPOINT, step)
        maybe_fail(step)
    write(CHECKPOINT, step)
    DONE.touch()


def follow():
    note("start", step=read(CHECKPOINT))
    while not DONE.exists():
        if told:
            save(read(STEP))
        time.sleep(args.step_secs)
        maybe_fail(read(STEP))


# Slurm sends SIGTERM to every process of a step that it preempts, and infill the rescale signal.
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN if RANK == args.ignore_signal else hear)
if PLACE["node"] == args.fail_node:
    note("broken")
    sys.exit(args.fail_code)
count() if RANK == 0 else follow()
note("end", step=read(CHECKPOINT))
