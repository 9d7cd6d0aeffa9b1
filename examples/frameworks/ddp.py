"""DistributedDataParallel: infill run -- python3 ddp.py, or infill run -- torchrun --nproc-per-node=4 ddp.py"""

import os

import infill
import torch
import torch.distributed as dist
from infill.torch import ElasticSampler
from spirals import GLOBAL_BATCH, SAMPLES, STEPS, spirals, tell, tell_end
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x, y = map(torch.from_numpy, spirals())
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
sampler = ElasticSampler(SAMPLES, GLOBAL_BATCH)
loader = DataLoader(TensorDataset(x, y), batch_sampler=sampler)
step = 0

if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt", weights_only=True)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    sampler.load_state_dict(saved["sampler"])
    step = saved["step"]
model = nn.parallel.DistributedDataParallel(net)


@infill.on_rescale
def save():
    if rank == 0:
        parts = {"net": net, "optimizer": optimizer, "sampler": sampler}
        torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, "checkpoint.part")
        os.replace("checkpoint.part", "checkpoint.pt")


while step < STEPS:
    for (points, arms), part in sampler.parts(loader):
        with part.sync(model):
            (nn.functional.cross_entropy(model(points), arms) * part.weight).backward()
        if part.last:
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            tell(step, rank, world)
            infill.step(samples=part.share, step=step)
            if step == STEPS:
                break

if rank == 0:
    tell_end("DDP", torch.__version__, nn.functional.cross_entropy(net(x), y).item())
dist.destroy_process_group()
