#!/usr/bin/env python3
"""Data-parallel training that can be rescaled: a small network learns two spirals, on processors, with gloo.

What makes it malleable:
  - on SIGUSR1 or SIGTERM all ranks agree to leave after the same step, rank 0 saves, and all exit with code 0;
  - the checkpoint holds the model, the optimizer, the step, the place in the data and the random state;
  - the global batch is the same at any number of ranks: each rank takes its share of it.
It starts alike under `infill run`, torchrun, or alone.
"""

import argparse
import datetime
import json
import math
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "contrib", "python"))
try:
    import infill
except ImportError:
    infill = None

POINTS = 4096


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--global-batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--checkpoint", default="train_ddp.pt")
    p.add_argument("--checkpoint-every", type=int, default=0, help="also save each N steps; 0: only when leaving")
    p.add_argument("--log", default="train_ddp.jsonl", help="one line a step, appended")
    p.add_argument("--step-secs", type=float, default=0.0, help="shortest time of a step")
    p.add_argument("--timeout-secs", type=float, default=30.0, help="give up peers that don't answer for so long")
    fail = p.add_argument_group("planted failures")
    fail.add_argument("--fail-at", type=int, help="fail before this step")
    fail.add_argument("--fail-rank", type=int, default=0)
    fail.add_argument("--fail-code", type=int, default=3)
    fail.add_argument("--fail-once", help="fail only if this file does not exist; it is made then")
    return p.parse_args()


class Leave:
    """Whether somebody asked us to save and exit."""

    def __init__(self):
        self.asked = False
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, *_):
        self.asked = True


def spirals(seed):
    """Points on two arms, and the arm of each."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.arange(POINTS) % 2
    t = torch.rand(POINTS, generator=generator).sqrt() * 3 * math.pi
    angle = t + arm * math.pi
    points = torch.stack([t * angle.cos(), t * angle.sin()], dim=1) / 10
    return points + torch.randn(POINTS, 2, generator=generator) * 0.02, arm


def batch_of(position, size, seed):
    """Indices of the global batch that begins at `position` in the endless sequence of shuffled epochs."""
    indices = []
    while len(indices) < size:
        epoch, offset = divmod(position + len(indices), POINTS)
        order = torch.randperm(POINTS, generator=torch.Generator().manual_seed(seed * 100003 + epoch))
        indices.extend(order[offset : offset + size - len(indices)].tolist())
    return torch.tensor(indices)


class Training:
    def __init__(self, args):
        self.args, self.leave = args, Leave()
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        # Not every build of PyTorch has libuv, and so few ranks need none.
        os.environ.setdefault("USE_LIBUV", "0")
        timeout = datetime.timedelta(seconds=args.timeout_secs)
        dist.init_process_group("gloo", rank=self.rank, world_size=self.world, timeout=timeout)
        torch.manual_seed(args.seed)
        net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
        self.step, self.position = 0, 0
        self.restore(net)
        self.net = net
        self.model = nn.parallel.DistributedDataParallel(net)
        self.points, self.arms = spirals(args.seed)
        self.log = open(args.log, "a", buffering=1) if self.rank == 0 else None

    def restore(self, net):
        if not os.path.exists(self.args.checkpoint):
            return
        saved = torch.load(self.args.checkpoint, weights_only=True)
        net.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.position = saved["step"], saved["position"]
        torch.set_rng_state(saved["rng"])

    def save(self):
        if self.rank != 0:
            return
        saved = {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "position": self.position,
            "rng": torch.get_rng_state(),
        }
        part = self.args.checkpoint + ".part"
        with open(part, "wb") as file:
            torch.save(saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.args.checkpoint)

    def train_step(self):
        size = self.args.global_batch
        mine = torch.tensor_split(batch_of(self.position, size, self.args.seed), self.world)[self.rank]
        self.optimizer.zero_grad()
        out = self.model(self.points[mine])
        # The mean over the global batch: DDP divides the sum of the gradients by the number of ranks.
        part = nn.functional.cross_entropy(out, self.arms[mine], reduction="sum") / size
        (part * self.world).backward()
        self.optimizer.step()
        # The loss of all ranks, and whether any of them was asked to leave, in one message.
        shared = torch.tensor([part.item(), float(self.leave.asked)])
        dist.all_reduce(shared)
        self.step, self.position = self.step + 1, self.position + size
        return shared[0].item(), shared[1].item() > 0, len(mine)

    def tell(self, loss, count):
        if infill:
            infill.report(count, self.step if self.rank == 0 else None, loss if self.rank == 0 else None)
        if self.log:
            line = {
                "step": self.step,
                "loss": round(loss, 6),
                "generation": int(os.environ.get("INFILL_GENERATION", 0)),
                "world": self.world,
                "samples": self.position,
            }
            self.log.write(json.dumps(line) + "\n")
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
        leaving = False
        while self.step < self.args.steps and not leaving:
            begin = time.monotonic()
            self.fail_if_planted()
            loss, leaving, count = self.train_step()
            self.tell(loss, count)
            every = self.args.checkpoint_every
            if every and self.step % every == 0 and not leaving:
                self.save()
            while not self.leave.asked and (rest := begin + self.args.step_secs - time.monotonic()) > 0:
                time.sleep(min(rest, 0.05))
        self.save()
        # Nobody leaves before the checkpoint is there.
        dist.barrier()
        dist.destroy_process_group()
        print(f"rank {self.rank}: {'saved at' if leaving else 'done with'} step {self.step}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    Training(parse_args()).run()
