"""FSDP2 (`fully_shard`) with distributed checkpoints: infill run -- python3 fsdp2_dcp.py

Each rank saves its shards. DCP cuts them anew for another number of ranks.
"""

import os
import shutil

import infill
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from spirals import GLOBAL_BATCH, STEPS, order, spirals, tell, tell_end
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

# Not needed on GPUs, nor with later versions: what PyTorch 2.6 lacks on processors.
if not hasattr(torch.cpu.Stream, "record_event"):
    torch.cpu.Stream.record_event = lambda stream, event=None: torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda stream, event: None

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (world,))

x, y = map(torch.from_numpy, spirals())
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
for layer in (net[0], net[2], net[4]):
    fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
step = 0


def state():
    model, of_optimizer = get_state_dict(net, optimizer)
    return {"model": model, "optimizer": of_optimizer, "step": torch.tensor(step)}


if os.path.exists("checkpoint"):
    saved = state()
    dcp.load(saved, checkpoint_id="checkpoint")
    set_state_dict(net, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    step = int(saved["step"])


@infill.on_rescale
def save():
    dcp.save(state(), checkpoint_id="checkpoint.part")
    if rank == 0:  # All shards are there once dcp.save returns.
        shutil.rmtree("checkpoint", ignore_errors=True)
        os.rename("checkpoint.part", "checkpoint")


while step < STEPS:
    mine = order(step)[rank :: world]
    # The mean over the global batch, also where the shares differ: FSDP divides by the number of ranks.
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):  # Only for PyTorch 2.6 on processors.
        loss = nn.functional.cross_entropy(net(x[mine]), y[mine], reduction="sum") * world / GLOBAL_BATCH
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    tell(step, rank, world)
    infill.step(samples=len(mine), step=step)

loss = nn.functional.cross_entropy(net(x), y).item()
if rank == 0:
    tell_end("FSDP2 + DCP", torch.__version__, loss)
dist.destroy_process_group()
