"""PyTorch Lightning: infill run -- python3 with_lightning.py"""

import infill
import lightning
import torch
from infill.lightning import FixedBatches, InfillCallback
from spirals import GLOBAL_BATCH, SAMPLES, STEPS, spirals, tell, tell_end
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
x, y = map(torch.from_numpy, spirals())


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))

    def training_step(self, batch, index):
        points, arms = batch
        return nn.functional.cross_entropy(self.layers(points), arms)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Tell(lightning.Callback):
    step = None

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step != self.step and trainer.global_step:
            self.step = trainer.global_step
            tell(self.step, trainer.global_rank, trainer.world_size)

    def on_train_start(self, trainer, module):
        self.step = trainer.global_step


net, place = Net(), infill.plan()
batches = FixedBatches(SAMPLES, GLOBAL_BATCH, micro_batch=32)
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=len(place.nodes), max_steps=STEPS, max_epochs=-1,
    strategy="ddp" if place.world_size > 1 else "auto",
    accumulate_grad_batches=batches.accumulate, use_distributed_sampler=False,
    callbacks=[Tell(), InfillCallback(batches)],
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(net, DataLoader(TensorDataset(x, y), batch_sampler=batches))
if place.rank == 0:
    tell_end("Lightning", lightning.__version__, nn.functional.cross_entropy(net.layers(x), y).item())
