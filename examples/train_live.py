#!/usr/bin/env python3
"""Data-parallel training that is rescaled without a restart: a small network learns two spirals, on processors.

Differences to train_ddp.py:
  - `Elastic` takes the place of the process group, of DistributedDataParallel and of loading the checkpoint;
  - `job.batches` hands out the samples, and `job.micro` is where the update is made, the membership changes, or a lost
    member is noticed.
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
from infill.torch import Elastic, ElasticSampler, spare_worker  # noqa: E402

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
        optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
        data = spirals(args.seed)
        self.sampler = ElasticSampler(POINTS, args.global_batch, args.micro_batch, seed=args.seed)
        self.loader = DataLoader(
            data, batch_sampler=self.sampler, num_workers=args.workers, persistent_workers=args.workers > 0,
            worker_init_fn=spare_worker,
        )  # fmt: skip
        # From here on this process may be one of many: a newcomer waits in this line, and then has the others' state.
        self.job = Elastic(
            net, optimizer, self.sampler, scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999),
            total=args.steps, warm=lambda model: self.loss(model, *data[:2]),
            checkpoint=args.checkpoint, checkpoint_secs=args.checkpoint_secs,
        )  # fmt: skip
        self.trace = open(args.trace, "a", buffering=1) if args.trace else None

    def loss(self, model, points, arms):
        return nn.functional.cross_entropy(model(points), arms)

    def tell(self, loss):
        job, a = self.job, self.args
        self.trace_line(loss=loss)
        if job.rank == 0:
            place = {"step": job.updates, "generation": infill.plan().generation, "membership": job.epoch}
            samples = self.sampler.epoch * POINTS + self.sampler.done
            with open(a.log, "a") as log:
                line = {**place, "world": job.world, "loss": round(loss, 6), "samples": samples, "time": time.time()}
                log.write(json.dumps(line) + "\n")
            if job.updates % 10 == 0:
                print(f"step={job.updates} loss={loss:.4f} world={job.world}", flush=True)

    def trace_line(self, **what):
        if self.trace:
            job = self.job
            place = {"membership": job.epoch, "world": job.world, "rank": job.rank, "pid": os.getpid(),
                     "node": os.environ.get("SLURMD_NODENAME")}  # fmt: skip
            self.trace.write(json.dumps({**place, **what, "step": job.updates + ("mine" in what)}) + "\n")

    def train(self):
        """Trains batch after batch, over all epochs."""
        job, a = self.job, self.args
        begin, total = time.monotonic(), torch.zeros(())
        for batch in job.batches(self.loader):
            with job.micro(batch) as micro:
                self.trace_line(mine=micro.part.indices if micro.part.weight else [], epoch=self.sampler.epoch)
                loss = self.loss(job.model, *batch)
                micro.backward(loss)
                # The mean loss of the global batch, over all ranks.
                total += loss.detach() * micro.part.weight / job.world
                if micro.last:
                    # Calls that talk to other ranks come before the update.
                    dist.all_reduce(total)
                    micro.update()
                    self.tell(total.item())
                    time.sleep(max(0.0, begin + a.step_secs - time.monotonic()))
            if micro.done or micro.failed:
                begin, total = time.monotonic(), torch.zeros(())

    def finish(self):
        self.job.save()
        self.job.close()
        print(f"rank {self.job.rank}: done with step {self.job.updates}", flush=True)


def main():
    args = parse_args()
    torch.set_num_threads(1)
    if args.double:
        torch.set_default_dtype(torch.float64)
    training = Training(args)
    job = training.job
    print(f"rank {job.rank} of {job.world}: from step {job.updates}", flush=True)
    training.train()
    training.finish()


if __name__ == "__main__":
    main()
