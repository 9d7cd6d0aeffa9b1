#!/usr/bin/env python3
"""Data-parallel training that is rescaled without a restart: a small network learns two spirals, on processors.

Differences to train_ddp.py:
  - `infill.live` takes the place of the process group, of DistributedDataParallel and of loading the checkpoint;
  - `run.parts` hands out the samples, and `run.step` is where the membership changes, or a lost member is noticed.
The checkpoint is for restarts: another infill, torchrun, or all nodes lost. The program also starts alone.
"""

import argparse
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Not needed where the package is installed.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "contrib", "python", "src"))
import infill  # noqa: E402
from infill.torch import ElasticSampler, spare_worker  # noqa: E402

POINTS = 4096


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--global-batch", type=int, default=64)
    p.add_argument("--micro-batch", type=int, help="most samples of a rank at a time; default: its whole share")
    p.add_argument("--width", type=int, default=64, help="of the network: it has about the square of it in parameters")
    p.add_argument("--workers", type=int, default=0, help="processes that load data")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--double", action="store_true", help="compute with 64 bits")
    p.add_argument("--checkpoint", default="train_live.pt")
    p.add_argument("--checkpoint-secs", type=float, default=600.0, help="time between two checkpoints")
    p.add_argument("--log", default="train_live.jsonl", help="one line a step, appended")
    p.add_argument("--trace", help="lines for each rank, appended: which samples, and their results")
    p.add_argument("--step-secs", type=float, default=0.0, help="shortest time of a step")
    return p.parse_args()


def spirals(seed):
    """Makes points on two arms, and the arm of each."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.arange(POINTS) % 2
    t = torch.rand(POINTS, generator=generator).sqrt() * 3 * math.pi
    angle = t + arm * math.pi
    points = torch.stack([t * angle.cos(), t * angle.sin()], dim=1) / 10
    return TensorDataset(points + torch.randn(POINTS, 2, generator=generator) * 0.02, arm)


class Training:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        width = args.width
        net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)
        data = spirals(args.seed)
        self.sampler = ElasticSampler(POINTS, args.global_batch, args.micro_batch, seed=args.seed)
        self.loader = DataLoader(
            data, batch_sampler=self.sampler, num_workers=args.workers, persistent_workers=args.workers > 0,
            worker_init_fn=spare_worker,
        )  # fmt: skip
        # From here on this process may be one of many: a newcomer waits in this line, and then has the others' state.
        self.run = infill.live(
            net, self.optimizer, self.sampler, scheduler=self.scheduler,
            warm=lambda model: self.loss(model, *data[:2]),
            checkpoint=args.checkpoint, checkpoint_secs=args.checkpoint_secs,
        )  # fmt: skip
        self.trace = open(args.trace, "a", buffering=1) if args.trace else None

    def loss(self, model, points, arms):
        return nn.functional.cross_entropy(model(points), arms)

    def train_part(self, batch, part, total):
        """Runs forward and backward, and with the last part the update. Adds to the mean loss of the global batch."""
        loss = self.loss(self.run.model, *batch) * part.weight
        loss.backward()
        total += loss.detach() / self.run.world
        if part.last:
            # Calls that talk to other ranks come before the update, and none comes between the parts of the update.
            dist.all_reduce(total)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.tell(total.item())

    def tell(self, loss):
        run, a = self.run, self.args
        self.trace_line(loss=loss)
        if run.rank == 0:
            place = {"step": run.updates, "generation": infill.plan().generation, "membership": run.epoch}
            samples = self.sampler.epoch * POINTS + self.sampler.done
            with open(a.log, "a") as log:
                line = {**place, "world": run.world, "loss": round(loss, 6), "samples": samples, "time": time.time()}
                log.write(json.dumps(line) + "\n")
            if run.updates % 10 == 0:
                print(f"step={run.updates} loss={loss:.4f} world={run.world}", flush=True)

    def trace_line(self, **what):
        if self.trace:
            run = self.run
            place = {"membership": run.epoch, "world": run.world, "rank": run.rank, "pid": os.getpid(),
                     "node": os.environ.get("SLURMD_NODENAME")}  # fmt: skip
            self.trace.write(json.dumps({**place, **what, "step": run.updates + ("mine" in what)}) + "\n")

    def train(self):
        """Trains epoch after epoch, part after part."""
        run, a = self.run, self.args
        begin, total = time.monotonic(), torch.zeros(())
        while run.updates < a.steps:
            for batch, part in run.parts(self.loader):
                with run.step(part) as step:
                    self.trace_line(mine=part.indices if part.weight else [], epoch=self.sampler.epoch)
                    self.train_part(batch, part, total)
                    if part.last:
                        time.sleep(max(0.0, begin + a.step_secs - time.monotonic()))
                if step.done or step.failed:
                    begin, total = time.monotonic(), torch.zeros(())
                if run.updates >= a.steps:
                    break

    def finish(self):
        self.run.save()
        self.run.close()
        print(f"rank {self.run.rank}: done with step {self.run.updates}", flush=True)


def main():
    args = parse_args()
    torch.set_num_threads(1)
    if args.double:
        torch.set_default_dtype(torch.float64)
    training = Training(args)
    run = training.run
    print(f"rank {run.rank} of {run.world}: from step {run.updates}", flush=True)
    training.train()
    training.finish()


if __name__ == "__main__":
    main()
