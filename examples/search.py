#!/usr/bin/env python3
"""One trial of a search over networks: `search.sbatch` starts it with its parameters, on one node or several.

A small network computes little and sends little, and gains little from further nodes. A wide one gains more. Infill learns
that once for each kind of network (`--profile-by layers,hidden`). Optuna ends trials that are worse than most others.
"""

import argparse
import datetime
import os
import sys

import optuna
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

HERE = os.path.dirname(os.path.abspath(__file__))
# Not needed where the package is installed.
sys.path[:0] = [HERE, os.path.join(HERE, "..", "contrib", "python", "src")]
import infill.optuna  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402
from train_ddp import POINTS, spirals  # noqa: E402


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--layers", type=int, required=True)
    p.add_argument("--hidden", type=int, required=True)
    p.add_argument("--lr", type=float, required=True)
    p.add_argument("--rounds", type=int, default=20, help="reports to Optuna until the trial is complete")
    p.add_argument("--steps-a-round", type=int, default=25)
    p.add_argument("--study", default="spirals.journal")
    return p.parse_args()


def build(layers, hidden):
    """A network with this many hidden layers."""
    widths = [2] + [hidden] * layers
    parts = [part for pair in zip(widths, widths[1:]) for part in (nn.Linear(*pair), nn.Tanh())]
    return nn.Sequential(*parts, nn.Linear(widths[-1], 2))


def forever(sampler, loader):
    """This rank's parts of the data, epoch after epoch."""
    while True:
        yield from sampler.parts(loader)


def main():
    args = parse_args()
    plan = infill.plan()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    os.environ.setdefault("USE_LIBUV", "0")
    dist.init_process_group("gloo", rank=plan.rank, world_size=plan.world_size, timeout=datetime.timedelta(seconds=60))
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=3)
    study = infill.optuna.load_study("spirals", args.study, pruner=pruner)

    def objective(trial):
        torch.manual_seed(trial.number)
        net = build(args.layers, args.hidden)
        optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
        sampler = ElasticSampler(POINTS, 64, seed=trial.number)
        loader = DataLoader(spirals(1), batch_sampler=sampler)
        checkpoint = f"{args.study}-{trial.number}.pt"
        done, mean = 0, 0.0
        if os.path.exists(checkpoint):
            saved = torch.load(checkpoint, weights_only=True)
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
            sampler.load_state_dict(saved["sampler"])
            done, mean = saved["done"], saved["mean"]

        def save():
            if plan.rank == 0:
                state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "sampler": sampler.state_dict()}
                torch.save({**state, "done": done, "mean": mean}, checkpoint + ".part")
                os.replace(checkpoint + ".part", checkpoint)

        infill.on_rescale(save)
        model = nn.parallel.DistributedDataParallel(net)
        print(f"trial {trial.number}: {args.layers} layers of {args.hidden}, {plan.world_size} ranks, from {done}", flush=True)
        samples, steps, total = 0, 0, torch.zeros(())
        parts = forever(sampler, loader)
        while done < args.rounds:
            (points, arms), part = next(parts)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points), arms) * part.weight
            loss.backward()
            optimizer.step()
            total += loss.detach()
            samples, steps = samples + part.share, steps + 1
            if steps == args.steps_a_round:
                done += 1
                dist.all_reduce(total)
                mean = total.item() / plan.world_size / steps
                infill.optuna.report(trial, mean, done, samples=samples, total=args.rounds)
                samples, steps, total = 0, 0, torch.zeros(())
        return mean

    infill.optuna.optimize(study, objective)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
