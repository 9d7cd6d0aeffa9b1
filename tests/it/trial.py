"""A trial of a sweep without training: counts steps at the pace of its architecture, and is pruned at rungs.

Deep architectures take longer for a step, and gain less from a second node. Trials with --trial compare themselves with
all others that have reached a rung, and the worse half of them ends: asynchronous successive halving. With --study,
Optuna does that, and this job runs one trial after the other. Each ended trial is a line of DIR/ended.
"""

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, "/opt/infill/contrib/python/src")
import infill  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dir", type=pathlib.Path, required=True)
parser.add_argument("--trial", type=int)
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--rung", type=int, default=40, help="steps to the first rung; the others double")
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--step-secs", type=float, default=0.2)
parser.add_argument("--study", type=pathlib.Path, help="the journal of an Optuna study")
parser.add_argument("--total", type=int, help="trials of the whole study")
args = parser.parse_args()

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DONE = args.dir / f"done-{os.environ['INFILL_JOB_ID']}-{os.environ['INFILL_GENERATION']}"


def step_secs(layers):
    """The pace: one layer gains all of each node, four layers a fifth of it."""
    share = 1.0 if layers == 1 else 0.2
    return args.step_secs * (1 - share + share / WORLD)


def loss(trial, step):
    """A curve whose order hardly changes, as with trials of one kind of network."""
    luck = int(hashlib.sha256(str(trial).encode()).hexdigest()[:6], 16) / 0xFFFFFF
    return luck + 1.0 / step


def is_among_the_better_half(step, value):
    with open(args.dir / f"rung-{step}", "a+", encoding="utf-8") as rung:
        fcntl.flock(rung, fcntl.LOCK_EX)
        rung.seek(0)
        before = [float(line) for line in rung]
        rung.write(f"{value}\n")
    return sum(other < value for other in before) <= len(before) // 2


def is_rung(step):
    return step % args.rung == 0 and (step // args.rung).bit_count() == 1 and step < args.steps


def note_end(trial, state, step, begun):
    line = json.dumps({"trial": trial, "state": state, "step": step, "secs": time.time() - begun}) + "\n"
    with open(args.dir / "ended", "a", encoding="utf-8") as file:
        file.write(line)


def train(trial, layers, end_step):
    """Counts steps and saves them. Returns the state and the step of the end."""
    saved = args.dir / f"saved-{trial}"
    begun = int(saved.read_text()) if saved.exists() else 0
    done = begun
    infill.on_rescale(lambda: saved.write_text(str(done)))
    state = "COMPLETE"
    for done in range(begun + 1, args.steps + 1):
        time.sleep(step_secs(layers))
        if not end_step(loss(trial, done), done):
            state = "PRUNED"
            break
    return state, done


def single_trial():
    begun = time.time()

    def end_step(value, step):
        infill.step(8 * WORLD, step, value, total=args.steps)
        return not is_rung(step) or is_among_the_better_half(step, value)

    state, step = train(args.trial, args.layers, end_step)
    note_end(args.trial, state, step, begun)


def study():
    import infill.optuna
    import optuna

    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=args.rung, reduction_factor=2)
    shared = infill.optuna.load_study("sweep", str(args.study), pruner=pruner)

    def objective(trial):
        begun = time.time()
        layers = trial.suggest_categorical("layers", [1, 4])

        def end_step(value, step):
            try:
                infill.optuna.report(trial, value, step, samples=8 * WORLD, total=args.steps)
            except optuna.TrialPruned:
                return False
            return True

        state, step = train(trial.number, layers, end_step)
        note_end(trial.number, state, step, begun)
        if state == "PRUNED":
            raise optuna.TrialPruned
        return loss(trial.number, step)

    infill.optuna.optimize(shared, objective, total=args.total)


if RANK:
    # The first rank does the work of all. This one leaves when it is told, or when the first has ended.
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
    while not DONE.exists():
        time.sleep(0.1)
else:
    args.dir.mkdir(exist_ok=True)
    single_trial() if args.study is None else study()
    DONE.touch()
