"""A training job without training that stays alive over changes of size: speaks contrib/CONTROL.md and logs events.

Its processes meet in DIR instead of at a store. All take part in each step, which rank 0 counts, and all keep the
count in memory (represented by a file for each epoch). Rank 0 says when all change to another epoch: once all have
the same count, or at once if that is urgent. A step that does not come is reported. Every event is one line of JSON
in DIR/events, as in trainee.py.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dir", type=pathlib.Path, required=True)
parser.add_argument("--step-secs", type=float, default=0.1)
parser.add_argument("--save-secs", type=float, default=0.0, help="how long saving takes after the signal")
parser.add_argument("--warm-secs", type=float, default=0.5, help="how long a process takes until it is ready")
parser.add_argument("--fail-warm", metavar="NODE", help="nothing warms up on this node")
parser.add_argument("--throw", metavar="HOW", help="an exception: `always` before a word, or in this step of rank 0, once")
parser.add_argument("--hopeless", action="store_true", help="the first change fails")
args = parser.parse_args()

NODE = os.environ.get("SLURMD_NODENAME", "")
CHECKPOINT, DONE, ENOUGH = (args.dir / n for n in ("checkpoint", "done", "enough"))
HOPELESS, THROWN = args.dir / "was-hopeless", args.dir / "thrown"
place = {"generation": int(os.environ["INFILL_GENERATION"]), "rank": int(os.environ["RANK"]), "world": 0}
# Periodic checkpoints are for jobs that lose all their processes.
SAVE_EVERY = 10
# A step that takes this many seconds does not come. It is reported at this interval.
STUCK_SECS = 3.0
newest, changed, told = None, threading.Condition(), False
# The step up to which this process has trained.
memory = 0
to = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def note(event, **more):
    line = json.dumps({"event": event, "at": time.time(), "node": NODE, "pid": os.getpid(), **place, **more}) + "\n"
    with open(args.dir / "events", "a", encoding="utf-8") as file:
        file.write(line)


def write(path, value):
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(str(value), encoding="utf-8")
    new.rename(path)


def read(path):
    try:
        return int(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0


def hear(number, _frame):
    global told
    # Slurm sends SIGTERM to the agent too, which then says what to do.
    told = told or number == signal.SIGUSR1 or not newest


def say(what, **more):
    to.sendall(json.dumps({"type": what, **more}).encode() + b"\n")


def listen():
    global newest
    for line in to.makefile():
        message = json.loads(line)
        kind = message["type"]
        if kind == "welcome":
            threading.Thread(target=warm, daemon=True).start()
        elif kind == "host":
            say("store", epoch=message["epoch"], port=1 + message["epoch"] % 60000)
        elif kind == "roll":
            say("here", epoch=place["generation"])
        elif kind == "save":
            write(CHECKPOINT, max(memory, read(CHECKPOINT)))
            say("saved", epoch=place["generation"], step=memory)
        elif kind in ("regroup", "leave"):
            with changed:
                if newest is None or message["epoch"] > newest["epoch"]:
                    newest = message
                    write(args.dir / f"held.{NODE}", message["epoch"])
                changed.notify_all()


def warm():
    time.sleep(args.warm_secs)
    if NODE == args.fail_warm:
        os._exit(4)
    say("ready", epoch=0)


def depart(step, event):
    note(event, step=step)
    sys.stdout.flush()
    os._exit(0)


def save(step):
    """The count of any process that has trained: rank 0 may be gone."""
    time.sleep(args.save_secs)
    if place["world"] and (place["rank"] == 0 or step > read(CHECKPOINT)):
        write(CHECKPOINT, step)
    depart(step, "stop")


def file(epoch, what):
    return args.dir / f"epoch.{epoch}.{what}"


def may_change(nodes):
    """Rank 0 announces that all present members have the newest epoch."""
    return newest.get("urgent") or all(read(args.dir / f"held.{node}") >= newest["epoch"] for node in nodes)


def join(step):
    """Changes to the newest epoch. Returns the step from which training continues, and the nodes."""
    while True:
        wanted = newest
        if wanted["type"] == "leave":
            say("left", epoch=wanted["epoch"])
            depart(step, "left")
        if args.hopeless and place["world"] and not HOPELESS.exists():
            say("hopeless", epoch=wanted["epoch"], why="it was told to be")
            while not told:
                time.sleep(0.05)
            if place["rank"] == 0:
                HOPELESS.touch()
            save(step)
        epoch = wanted["epoch"]
        if place["world"] and place["rank"] == 0:
            # A process that heard of a newer epoch before it changed to the agreed one follows.
            write(file(epoch, "go"), step)
        if wanted["rank"] == 0:
            write(file(epoch, "step"), step)
        write(file(epoch, f"rank{wanted['rank']}"), 1)
        while newest is wanted and not told:
            if all(file(epoch, f"rank{rank}").exists() for rank in range(wanted["world"])):
                place.update(generation=epoch, rank=wanted["rank"], world=wanted["world"])
                step = read(file(epoch, "step"))
                note("start", step=step)
                say("regrouped", epoch=epoch, step=step, secs={"meet": 0.01})
                return step, wanted["nodes"]
            time.sleep(0.01)
        if told:
            save(step)


def is_to_change():
    epoch = newest["epoch"]
    return epoch > place["generation"] and (newest.get("urgent") or file(epoch, "go").exists())


def throw_if_due(step):
    if args.throw == str(step) and place["rank"] == 0 and not THROWN.exists():
        THROWN.touch()
        raise RuntimeError("thrown")


def take_part(step):
    """Makes the next step with all others. Returns the count, which stays the same if a message comes first."""
    time.sleep(args.step_secs)
    throw_if_due(step + 1)
    epoch, since = place["generation"], time.monotonic()
    count, parts = file(epoch, "count"), [file(epoch, f"part{rank}") for rank in range(place["world"])]
    write(parts[place["rank"]], step + 1)
    while not (told or DONE.exists() or is_to_change()):
        if place["rank"] == 0 and all(read(part) > step for part in parts):
            commit(step + 1)
            return step + 1
        if place["rank"] > 0 and read(count) > step:
            return read(count)
        if time.monotonic() > since + STUCK_SECS:
            say("stuck", epoch=epoch)
            since = time.monotonic()
        time.sleep(0.01)
    return step


def commit(step):
    note("step", step=step)
    write(file(place["generation"], "count"), step)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as progress:
        try:
            progress.sendto(f"samples={place['world']} step={step}".encode(), os.environ["INFILL_PROGRESS"])
        except OSError as error:
            note("untold", error=str(error))
    if step % SAVE_EVERY == 0 or ENOUGH.exists():
        write(CHECKPOINT, step)
    if ENOUGH.exists():
        DONE.touch()


def train(step, nodes):
    global memory
    while not DONE.exists():
        memory = step
        if told:
            save(step)
        step = take_part(step)
        if place["rank"] == 0 and newest["epoch"] > place["generation"] and may_change(nodes):
            write(file(newest["epoch"], "go"), step)
        if is_to_change():
            # All have the same count in memory.
            step, nodes = join(max(step, read(file(place["generation"], "count"))))


for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, hear)
if args.throw == "always":
    raise RuntimeError("thrown")
to.connect(os.environ["INFILL_CONTROL"])
threading.Thread(target=listen, daemon=True).start()
say("hello", version=1, pid=os.getpid(), local_rank=int(os.environ["LOCAL_RANK"]))
while newest is None:
    if told:
        depart(0, "stop")
    time.sleep(0.02)
train(*join(read(CHECKPOINT)))
note("end", step=read(CHECKPOINT))
