"""The callback for the Hugging Face Trainer, in real trainers."""

import pathlib
import sys
import tempfile
import unittest

from agent import SRC, Agent
from tiers import need_frameworks

need_frameworks("torch", "accelerate", "transformers")

sys.path.insert(0, str(SRC))

from infill.transformers import last_checkpoint  # noqa: E402

TRAINING = """
    import time, torch, infill
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x):
            time.sleep(0.02)
            return {"loss": self.layer(x).square().mean()}

    class Witness(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            print("from", state.global_step, "on", args.world_size, flush=True)

    torch.set_num_threads(1)
    args = TrainingArguments(
        "out", max_steps=120, per_device_train_batch_size=5, gradient_accumulation_steps=2, use_cpu=True,
        save_strategy="no", eval_strategy="steps", eval_steps=1000, logging_steps=1, disable_tqdm=True,
        report_to="none", ddp_backend="gloo",
    )
    data = [{"x": torch.ones(2)} for _ in range(400)]
    callbacks = [infill.transformers.InfillCallback(), Witness()]
    trainer = Trainer(Net(), args, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks)
    trainer.train(resume_from_checkpoint=infill.transformers.last_checkpoint("out"))
    print("done with", trainer.state.global_step, flush=True)
"""


#: 72 steps of 16 samples, 8 an epoch.
FIXED = """
    import time, torch, infill
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, y):
            time.sleep(0.02)
            return {"loss": (self.layer(x) - y).square().mean()}

    class Witness(TrainerCallback):
        def on_step_end(self, args, state, control, model, lr_scheduler, **_):
            print("step", state.global_step, model.layer.weight.sum().item(), lr_scheduler.get_last_lr()[0], flush=True)

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    net, x = Net(), torch.randn(128, 4)
    args = TrainingArguments(
        "out", num_train_epochs=9, per_device_train_batch_size=8, use_cpu=True, learning_rate=0.05, save_strategy="no",
        logging_strategy="no", disable_tqdm=True, report_to="none", ddp_backend="gloo", optim="adamw_torch",
    )
    infill.transformers.fixed_batch(args, global_batch=16)
    data = [{"x": row, "y": row.sum(0, keepdim=True)} for row in x]
    trainer = Trainer(net, args, train_dataset=data, callbacks=[Witness(), infill.transformers.InfillCallback()])
    trainer.train(resume_from_checkpoint=infill.transformers.last_checkpoint("out"))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
"""


def stepped(out):
    """Weight and learning rate after each step."""
    words = [line.split() for line in out.splitlines() if line.startswith("step ")]
    return {int(step): (float(weight), float(rate)) for _, step, weight, rate in words}


class Transformers(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)

    def lines(self, world):
        ended = self.agent.ended()
        self.assertEqual([code for code, _, _ in ended], [0] * world, ended)
        printed = [[line for line in out.splitlines() if line.startswith(("from", "done"))] for _, out, _ in ended]
        self.assertEqual(printed, [printed[0]] * world)
        return printed[0]

    def test_rescales(self):
        at = 0
        for world in (2, 1, 2):
            self.agent.start(TRAINING, world)
            reports = self.agent.reports_until(at + 10)
            # Two batches of five per step.
            self.assertEqual({r["samples"] for r in reports}, {"10.0"})
            self.agent.ask()
            self.assertEqual(self.lines(world), [f"from {at} on {world}"])
            reports += self.agent.reports()
            at = max(int(r.get("step", 0)) for r in reports)
            out = f"{self.agent.directory}/out"
            self.assertEqual(last_checkpoint(out), f"{out}/checkpoint-{at}")
            self.assertEqual(sum(float(r.get("saved", 0)) > 0 for r in reports), world)
        self.agent.start(TRAINING, 1)
        self.assertEqual(self.lines(1), [f"from {at} on 1", "done with 120"])


    def test_a_fixed_batch_learns_the_same_at_any_size(self):
        self.agent.start(FIXED, 1)
        ((code, out, err),) = self.agent.ended()
        self.assertEqual(code, 0, err)
        undisturbed = stepped(out)
        self.agent.reports()
        self.assertEqual(list(undisturbed), list(range(1, 73)))
        found = self.agent.train_at_sizes(FIXED, ((4, 13), (1, 28), (4, 41), (2, 72)), stepped)
        self.assertEqual(list(found), list(undisturbed))
        for step, (weight, rate) in undisturbed.items():
            self.assertAlmostEqual(found[step][0], weight, 9, f"step {step}")
            self.assertAlmostEqual(found[step][1], rate, 9, f"step {step}")

    def test_a_batch_that_does_not_divide_is_refused_with_the_sizes_that_do(self):
        self.agent.start(FIXED, 3)
        for code, _, err in self.agent.ended():
            self.assertEqual(code, 1)
            self.assertIn("a global batch of 16 does not divide by 3 ranks; submit with --comment=infill:nodes=1,2,4,8,16", err)

    def test_a_rest_is_warned_of(self):
        self.agent.start(FIXED.replace("randn(128", "randn(130").replace("=9", "=1"), 1)
        ((code, _, err),) = self.agent.ended()
        self.assertEqual(code, 0, err)
        self.assertIn("130 samples do not divide by 16", err)


class LastCheckpoint(unittest.TestCase):
    """last_checkpoint."""

    def test_the_newest_complete_checkpoint(self):
        with tempfile.TemporaryDirectory(prefix="[a]") as directory:
            self.assertIsNone(last_checkpoint(directory))
            self.assertIsNone(last_checkpoint(directory + "/none"))
            for name in ("checkpoint-9", "checkpoint-10", "checkpoint-11", "checkpoint-x"):
                path = pathlib.Path(directory, name)
                path.mkdir()
                if name != "checkpoint-11":
                    (path / "trainer_state.json").touch()
            self.assertEqual(last_checkpoint(directory), f"{directory}/checkpoint-10")


if __name__ == "__main__":
    unittest.main()
