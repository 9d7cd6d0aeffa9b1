"""Hugging Face Trainer: infill run -- python3 hf_trainer.py"""

import torch
import transformers
from infill.transformers import InfillCallback, fixed_batch, last_checkpoint
from spirals import GLOBAL_BATCH, STEPS, spirals, tell, tell_end
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
x, y = map(torch.from_numpy, spirals())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, points, arms):
        return {"loss": nn.functional.cross_entropy(self.layers(points), arms)}


class Tell(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        tell(state.global_step, args.process_index, args.world_size)


args = TrainingArguments(
    "out", max_steps=STEPS, learning_rate=0.01, per_device_train_batch_size=32, use_cpu=True, ddp_backend="gloo",
    save_strategy="no", logging_strategy="no", disable_tqdm=True, report_to="none", optim="adamw_torch",
)  # fmt: skip
fixed_batch(args, global_batch=GLOBAL_BATCH)
net = Net()
data = [{"points": point, "arms": arm} for point, arm in zip(x, y)]
trainer = Trainer(net, args, train_dataset=data, callbacks=[Tell(), InfillCallback()])
trainer.train(resume_from_checkpoint=last_checkpoint("out"))
if args.process_index == 0:
    tell_end("Hugging Face", transformers.__version__, nn.functional.cross_entropy(net.layers(x), y).item())
# With an open group, PyTorch may abort the process when it ends.
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
