"""A loop of one's own with Accelerate: infill run -- python3 with_accelerate.py"""

import os

import accelerate
import infill
import torch
from accelerate import Accelerator
from spirals import GLOBAL_BATCH, SAMPLES, STEPS, spirals, tell, tell_end
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
accelerator = Accelerator(
    # The loader's batch is the global one, at any number of ranks that divides it.
    dataloader_config=accelerate.DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True),
    # On processors Accelerate prefers MPI, which does not know infill's ranks.
    cpu=True, kwargs_handlers=[accelerate.InitProcessGroupKwargs(backend="gloo")],
)  # fmt: skip
rank, world = accelerator.process_index, accelerator.num_processes

x, y = map(torch.from_numpy, spirals())
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=GLOBAL_BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))
model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
step, steps_each = 0, SAMPLES // GLOBAL_BATCH

if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt", weights_only=True)
    accelerator.unwrap_model(model).load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


@infill.on_rescale
def save():
    if accelerator.is_main_process:
        saved = {"net": accelerator.unwrap_model(model).state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(saved, "checkpoint.part")
        os.replace("checkpoint.part", "checkpoint.pt")


while step < STEPS:
    epoch, skip = divmod(step, steps_each)
    left = accelerator.skip_first_batches(loader, skip) if skip else loader
    left.set_epoch(epoch)
    for points, arms in left:
        accelerator.backward(nn.functional.cross_entropy(model(points), arms))
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        tell(step, rank, world)
        infill.step(samples=len(points), step=step)
        if step == STEPS:
            break

if accelerator.is_main_process:
    tell_end("Accelerate", accelerate.__version__, nn.functional.cross_entropy(net(x), y).item())
accelerator.end_training()
