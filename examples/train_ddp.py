#!/usr/bin/env python3
"""Data-parallel training that can be rescaled: a small network learns two spirals, on processors, with gloo.

What makes it malleable:
  - `infill.step` ends each step: on SIGUSR1 or SIGTERM all ranks save and leave after the same one, with code 0;
  - the checkpoint holds the model, the optimizer, the step, the place in the data and the random state;
  - the global batch is the same at any number of ranks: ElasticSampler gives each rank its share.
It starts in the same way under `infill run`, under torchrun, or alone.
"""

import argparse
import datetime
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
from infill.torch import ElasticSampler  # noqa: E402

POINTS = 4096


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--global-batch", type=int, default=64)
    p.add_argument("--micro-batch", type=int, help="most samples of a rank at a time; default: its whole share")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--double", action="store_true", help="compute with 64 bits")
    p.add_argument("--checkpoint", default="train_ddp.pt")
    p.add_argument("--checkpoint-every", type=int, default=0, help="also save each N steps; 0: only when leaving")
    p.add_argument("--log", default="train_ddp.jsonl", help="one line a step, appended")
    p.add_argument("--trace", help="one line a rank and step, appended: which samples")
    p.add_argument("--step-secs", type=float, default=0.0, help="shortest time of a step")
    p.add_argument("--timeout-secs", type=float, default=30.0, help="give up peers that don't answer for this time")
    fail = p.add_argument_group("planted failures")
    fail.add_argument("--fail-at", type=int, help="fail before this step")
    fail.add_argument("--fail-rank", type=int, default=0)
    fail.add_argument("--fail-code", type=int, default=3)
    fail.add_argument("--fail-once", help="fail only if this file does not exist; it is made then")
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
        self.rank, self.world = infill.plan().rank, infill.plan().world_size
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        # Not every build of PyTorch has libuv, and so few ranks do not need it.
        os.environ.setdefault("USE_LIBUV", "0")
        timeout = datetime.timedelta(seconds=args.timeout_secs)
        dist.init_process_group("gloo", rank=self.rank, world_size=self.world, timeout=timeout)
        torch.manual_seed(args.seed)
        self.net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.sampler = ElasticSampler(POINTS, args.global_batch, args.micro_batch, seed=args.seed)
        self.loader = DataLoader(spirals(args.seed), batch_sampler=self.sampler)
        self.step = 0
        self.restore()
        self.model = nn.parallel.DistributedDataParallel(self.net)
        self.log = open(args.log, "a", buffering=1) if self.rank == 0 else None
        self.trace = open(args.trace, "a", buffering=1) if args.trace else None
        infill.on_rescale(self.leave)

    def restore(self):
        if not os.path.exists(self.args.checkpoint):
            return
        saved = torch.load(self.args.checkpoint, weights_only=True)
        self.net.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.sampler.load_state_dict(saved["sampler"])
        self.step = saved["step"]
        torch.set_rng_state(saved["rng"])

    def save(self):
        if self.rank != 0:
            return
        saved = {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict(),
            "step": self.step,
            "rng": torch.get_rng_state(),
        }
        part = self.args.checkpoint + ".part"
        with open(part, "wb") as file:
            torch.save(saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.args.checkpoint)

    def leave(self):
        self.save()
        print(f"rank {self.rank}: saved at step {self.step}", flush=True)

    def parts(self):
        """Trains epoch after epoch on this rank's part."""
        while True:
            yield from self.sampler.parts(self.loader)

    def train_step(self, parts):
        """Learns from one global batch. Returns its mean loss, and which of its samples were this rank's."""
        loss, mine = torch.zeros(()), []
        for (points, arms), part in parts:
            with part.sync(self.model):
                weighted = nn.functional.cross_entropy(self.model(points), arms) * part.weight
                weighted.backward()
            loss += weighted.detach() / self.world
            mine += part.indices if part.weight else []
            if part.last:
                break
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        dist.all_reduce(loss)
        return loss.item(), mine

    def tell(self, loss, mine):
        place = {"step": self.step, "generation": infill.plan().generation, "world": self.world}
        if self.trace:
            self.trace.write(json.dumps({**place, "rank": self.rank, "epoch": self.sampler.epoch, "mine": mine}) + "\n")
        if self.log:
            samples = self.sampler.epoch * POINTS + self.sampler.done
            self.log.write(json.dumps({**place, "loss": round(loss, 6), "samples": samples, "time": time.time()}) + "\n")
            if self.step % 10 == 0:
                print(f"step={self.step} loss={loss:.4f} world={self.world}", flush=True)

    def fail_if_planted(self):
        a = self.args
        if self.step + 1 != a.fail_at or self.rank != a.fail_rank:
            return
        if a.fail_once:
            if os.path.exists(a.fail_once):
                return
            open(a.fail_once, "w").close()
        print(f"failing before step {a.fail_at}, as asked", file=sys.stderr, flush=True)
        os._exit(a.fail_code)

    def run(self):
        print(f"rank {self.rank} of {self.world}: from step {self.step}", flush=True)
        parts = self.parts()
        while self.step < self.args.steps:
            begin = time.monotonic()
            self.fail_if_planted()
            loss, mine = self.train_step(parts)
            self.tell(loss, mine)
            every = self.args.checkpoint_every
            if every and self.step % every == 0:
                self.save()
            time.sleep(max(0.0, begin + self.args.step_secs - time.monotonic()))
            infill.step(len(mine), self.step, loss)
        self.save()
        # No rank leaves before the checkpoint is written.
        dist.barrier()
        dist.destroy_process_group()
        print(f"rank {self.rank}: done with step {self.step}", flush=True)


def main():
    args = parse_args()
    torch.set_num_threads(1)
    if args.double:
        torch.set_default_dtype(torch.float64)
    Training(args).run()


if __name__ == "__main__":
    main()
