#!/usr/bin/env python3
"""Training under the execution plan that infill chose: a small GPT learns sequences, on processors, with gloo.

The plan decides how model, optimizer and batch are divided, and nothing else:
  - `zero = 0`: DistributedDataParallel; 1: that with ZeroRedundancyOptimizer; 3: `fully_shard` (FSDP2);
  - `tp`: heads of attention and the layers between, divided over this many processes by DTensor;
  - `accumulate`: micro-batches a step; `checkpointing`: activations computed again.
What is learned stays the same over any change of plan and size:
  - each global batch follows from the number of its step, and each replica takes its share;
  - the checkpoint holds whole tensors of model and optimizer, which the next plan divides in its own way.
`train_plans.py --write-plans plans.toml` writes the plans. It also starts under torchrun, or alone.
"""

import argparse
import datetime
import fnmatch
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

# Not needed where the package is installed.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "contrib", "python", "src"))
import infill  # noqa: E402
from infill.torch import split  # noqa: E402

WORDS, SEQUENCE = 31, 16

#: Other sizes and plans add up the same numbers in another order, which changes the last digits of a gradient. Adam
#: moves a weight by lr × m / (√v + eps): a change of d in a gradient moves it by up to lr × d / eps. Attention
#: ignores the bias of the keys. Its gradient is zero, so it consists of last digits alone, and the bias drifts at
#: full speed if eps is small. Over the plans of contrib/python/tests/test_train_plans.py weights come out 8e-15 apart
#: with this value, 1e-12 with PyTorch's 1e-8, and 0.07 with 1e-30 (64 bits, 73 steps).
EPS = 1e-6


def parse_pace(text):
    """Parses `PLAN:NODES:SECS,…`, with patterns of the names of plans and nodes."""
    items = [item.split(":") for item in text.split(",") if item]
    return [(plan, nodes, float(secs)) for plan, nodes, secs in items]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--global-batch", type=int, default=24)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--hidden", type=int, default=32)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--lr", type=float, default=0.003)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--double", action="store_true", help="compute with 64 bits")
    p.add_argument("--checkpoint", default="train_plans.pt")
    p.add_argument("--log", default="train_plans.jsonl", help="one line a step, appended")
    p.add_argument("--timeout-secs", type=float, default=30.0, help="give up peers that don't answer for this time")
    p.add_argument("--write-plans", metavar="FILE", help="write the plans of this model for `infill run`, and exit")
    p.add_argument("--nodes", default="1-4", help="sizes for --write-plans, as for `infill run`")
    pace = os.environ.get("TRAIN_PLANS_PACE", "")
    p.add_argument("--pace", type=parse_pace, metavar="PLAN:NODES:SECS,…", default=pace,
                   help="shortest time of a step under a plan on one of these nodes, by patterns of their names; N "
                        "nodes take an N-th of it. Default: $TRAIN_PLANS_PACE")  # fmt: skip
    return p.parse_args()


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.head_size = heads, hidden // heads
        self.queries, self.keys, self.values, self.out = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        def by_head(layer):
            # Under tensor parallelism, the heads of this process alone.
            return layer(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)

        queries, keys, values = map(by_head, (self.queries, self.keys, self.values))
        seen = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, checkpointing=False):
        super().__init__()
        self.checkpointing = checkpointing
        self.words, self.places = nn.Embedding(WORDS, hidden), nn.Embedding(SEQUENCE, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, WORDS)

    def forward(self, words):
        x = self.words(words) + self.places.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(self.norm(x))


def batch_of(step, size, seed):
    """The samples of a step: sequences x → a·x + b, with an occasional error, and the successor of each word."""
    random = torch.Generator().manual_seed(seed * 1_000_003 + step)
    words = torch.randint(WORDS, (size, SEQUENCE + 1), generator=random)
    true = torch.rand(words.shape, generator=random) < 0.95
    for i in range(1, SEQUENCE + 1):
        words[:, i] = torch.where(true[:, i], (3 * words[:, i - 1] + 7) % WORDS, words[:, i])
    return words[:, :-1], words[:, 1:]


def check(plan, heads):
    """Exits with a message if this program cannot run the plan."""
    able = plan.pp == 1 and not plan.offload and plan.zero in ((0, 1, 3) if plan.tp == 1 else (0,))
    if not able:
        sys.exit(f"plan {plan.exec_plan}: this program can do zero = 0, 1 or 3, or tp, but neither pp nor offload")
    if plan.world_size % plan.tp or heads % plan.tp:
        sys.exit(f"plan {plan.exec_plan}: tp = {plan.tp} divides {plan.world_size} processes or {heads} heads unevenly")


def divided(net, plan, mesh):
    """Divides the network as the plan says. Returns the module to call for its output."""
    if plan.tp > 1:
        columns, rows = ("attention.queries", "attention.keys", "attention.values", "mlp.0"), ("attention.out", "mlp.2")
        styles = {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}}
        for block in net.blocks:
            parallelize_module(block, mesh["tp"], styles)
        return net
    if plan.zero == 3:
        # gloo cannot compute the mean of 32-bit numbers, which `fully_shard` would ask for.
        how = {"mesh": mesh["dp"], "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float64)}
        for part in (*net.blocks, net):
            fully_shard(part, **how)
        return net
    return nn.parallel.DistributedDataParallel(net, process_group=mesh["dp"].get_group())


def complete_processors():
    """Adds what `fully_shard` needs on processors with PyTorch 2.6. Later versions have it."""
    if not hasattr(torch.cpu.Stream, "record_event"):
        torch.cpu.Stream.record_event = lambda stream, event=None: torch.cpu.Event()
        torch.cpu.Stream.wait_event = lambda stream, event: None


def spare_gathered():
    """For the forward pass under `fully_shard`, which gathers a layer's weights once more for the backward pass.

    On processors PyTorch 2.6 takes these weights for changed ones. It does not check tensors that pass through hooks.
    """
    return saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def whole(value):
    """The whole tensor, if each process has only a part of it. All processes must call it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def like(value, parameter):
    """The part of a whole tensor of the optimizer, divided as its parameter is. All processes must call it."""
    if isinstance(parameter, DTensor) and value.shape == parameter.shape:
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    return value


class Training:
    def __init__(self, args):
        self.args, self.plan = args, infill.plan()
        check(self.plan, args.heads)
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29513")
        # Not every build of PyTorch has libuv, and so few ranks do not need it.
        os.environ.setdefault("USE_LIBUV", "0")
        complete_processors()
        timeout = datetime.timedelta(seconds=args.timeout_secs)
        dist.init_process_group("gloo", rank=self.plan.rank, world_size=self.plan.world_size, timeout=timeout)
        self.mesh = init_device_mesh("cpu", (self.plan.dp, self.plan.tp), mesh_dim_names=("dp", "tp"))
        self.replicas = self.mesh["dp"].get_group()
        torch.manual_seed(args.seed)
        self.net = Gpt(args.layers, args.hidden, args.heads, self.plan.checkpointing)
        saved = self.saved()
        if saved:
            self.net.load_state_dict(saved["model"])
        self.model = divided(self.net, self.plan, self.mesh)
        self.optimizer = self.made_optimizer(saved.get("optimizer", {}))
        self.step = saved.get("step", 0)
        self.log = open(args.log, "a", buffering=1) if self.plan.rank == 0 else None
        infill.on_rescale(self.leave)

    def made_optimizer(self, states):
        """Makes the optimizer, with these states by parameter name."""
        how = {"lr": self.args.lr, "eps": EPS}
        if self.plan.zero == 1:
            optimizer = ZeroRedundancyOptimizer(self.net.parameters(), torch.optim.AdamW, self.replicas, **how)
        else:
            optimizer = torch.optim.AdamW(self.net.parameters(), **how)
        if states:
            named = enumerate(self.net.named_parameters())
            state = {i: {key: like(v, p) for key, v in states[name].items()} for i, (name, p) in named}
            group = {**optimizer.param_groups[0], "params": list(state)}
            optimizer.load_state_dict({"state": state, "param_groups": [group]})
        return optimizer

    def saved(self):
        if not os.path.exists(self.args.checkpoint):
            return {}
        return torch.load(self.args.checkpoint, weights_only=True)

    def save(self):
        """Gathers model and optimizer on all ranks, one tensor at a time. Rank 0 writes them."""
        if self.plan.zero == 1:
            self.optimizer.consolidate_state_dict(to=0)
        elsewhere = self.plan.zero == 1 and self.plan.rank != 0
        states = {} if elsewhere else self.optimizer.state_dict()["state"]
        names = [name for name, _ in self.net.named_parameters()]
        saved = {
            "model": {name: whole(value) for name, value in self.net.state_dict().items()},
            "optimizer": {names[i]: {key: whole(v) for key, v in state.items()} for i, state in states.items()},
            "step": self.step,
        }
        if self.plan.rank != 0:
            return
        part = self.args.checkpoint + ".part"
        with open(part, "wb") as file:
            torch.save(saved, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.args.checkpoint)

    def leave(self):
        self.save()
        print(f"rank {self.plan.rank}: saved at step {self.step}", flush=True)

    def parts(self):
        """This replica's micro-batches of the next step."""
        words, following = batch_of(self.step + 1, self.args.global_batch, self.args.seed)
        micro_batch = -(-self.args.global_batch // (self.plan.dp * self.plan.accumulate))
        for part in split(range(len(words)), self.plan.dp, self.mesh["dp"].get_local_rank(), micro_batch):
            yield words[part.indices], following[part.indices], part

    def train_step(self):
        """Learns from one global batch. Returns its mean loss, and how many of its samples were this rank's."""
        loss = torch.zeros(())
        for words, following, part in self.parts():
            with part.sync(self.model):
                with spare_gathered():
                    logits = self.model(words)
                weighted = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten()) * part.weight
                weighted.backward()
            loss += weighted.detach() / self.plan.dp
        if self.plan.tp > 1:
            self.share_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        dist.all_reduce(loss, group=self.replicas)
        return loss.item(), part.share / self.plan.tp

    def share_gradients(self):
        """The mean over the replicas, as in DistributedDataParallel, which does not accept parts of layers."""
        grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in self.net.parameters()]
        flat = torch.cat([grad.flatten() for grad in grads])
        dist.all_reduce(flat, group=self.replicas)
        for grad, mean in zip(grads, (flat / self.plan.dp).split([grad.numel() for grad in grads])):
            grad.copy_(mean.view_as(grad))

    def tell(self, loss):
        if not self.log:
            return
        place = {"step": self.step, "generation": infill.plan().generation, "world": self.plan.world_size}
        # Prints all digits.
        self.log.write(json.dumps({**place, "plan": self.plan.exec_plan, "loss": loss, "time": time.time()}) + "\n")
        if self.step % 10 == 0:
            print(f"step={self.step} loss={loss:.4f} world={self.plan.world_size}", flush=True)

    def pace_secs(self):
        """The shortest time of a step here, from `--pace`."""
        plan, node = self.plan.exec_plan, os.environ.get("SLURMD_NODENAME", "")
        met = (secs for p, n, secs in self.args.pace if fnmatch.fnmatch(plan, p) and fnmatch.fnmatch(node, n))
        return max(met, default=0.0) / self.plan.world_size

    def run(self):
        p, pace_secs = self.plan, self.pace_secs()
        where = f"rank {p.rank} of {p.world_size}"
        print(f"{where}: plan {p.exec_plan}, from step {self.step}", flush=True)
        while self.step < self.args.steps:
            begin = time.monotonic()
            loss, samples = self.train_step()
            self.tell(loss)
            time.sleep(max(0.0, begin + pace_secs - time.monotonic()))
            infill.step(samples, self.step, loss, self.args.steps)
        self.save()
        # No rank leaves before the checkpoint is written.
        dist.barrier()
        dist.destroy_process_group()
        print(f"{where}: done with step {self.step}", flush=True)


def main():
    args = parse_args()
    torch.set_num_threads(1)
    if args.double:
        torch.set_default_dtype(torch.float64)
    if args.write_plans:
        net = Gpt(args.layers, args.hidden, args.heads)
        found = infill.plans_of(net, global_batch=args.global_batch, sequence=SEQUENCE, nodes=args.nodes)
        found.write(args.write_plans)
    else:
        Training(args).run()


if __name__ == "__main__":
    main()
