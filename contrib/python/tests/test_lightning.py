"""The callback for PyTorch Lightning, in real trainers."""

import unittest

from agent import Agent
from tiers import need_frameworks

need_frameworks("lightning")

TRAINING = """
    import os, time, torch, lightning, infill
    from lightning.pytorch.callbacks import Callback

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            time.sleep(0.02)
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch, index):
            pass

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Witness(Callback):
        def on_train_start(self, trainer, module):
            print(trainer.world_size, "ranks from", trainer.global_step, flush=True)

        def on_exception(self, trainer, module, exception):
            print("left at", trainer.global_step, flush=True)

    torch.set_num_threads(1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(400, 2)), batch_size=5)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, strategy="ddp" if infill.plan().world_size > 1 else "auto", max_steps=200,
        accumulate_grad_batches=2, num_nodes=len(infill.plan().nodes), logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[infill.lightning.InfillCallback(), Witness()],
    )
    trainer.fit(Net(), data, torch.utils.data.DataLoader(torch.ones(4, 2)))
    print("done with", trainer.global_step, flush=True)
"""


#: 90 steps of 16 samples, 10 an epoch.
FIXED = """
    import time, torch, lightning, infill
    from lightning.pytorch.callbacks import Callback

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            time.sleep(0.02)
            return (self.layer(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, 90)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    class Witness(Callback):
        def on_train_start(self, trainer, module):
            self.step = trainer.global_step

        def on_train_batch_end(self, trainer, module, *_):
            if trainer.global_step > self.step:
                self.step, rate = trainer.global_step, trainer.optimizers[0].param_groups[0]["lr"]
                print("step", self.step, module.layer.weight.sum().item(), rate, flush=True)

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    net, place = Net(), infill.plan()
    x = torch.randn(165, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    batches = infill.lightning.FixedBatches(165, global_batch=16, micro_batch=8)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, strategy="ddp" if place.world_size > 1 else "auto", max_steps=90,
        accumulate_grad_batches=batches.accumulate, use_distributed_sampler=False, num_nodes=len(place.nodes),
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Witness(), infill.lightning.InfillCallback(batches)],
    )
    trainer.fit(net, torch.utils.data.DataLoader(data, batch_sampler=batches))
"""


class Lightning(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)

    def test_rescales(self):
        at = 0
        for world in (2, 1, 2):
            self.agent.start(TRAINING, world)
            self.agent.reports_until(at + 10)
            self.agent.ask()
            ended = self.agent.ended()
            self.assertEqual([code for code, _, _ in ended], [0] * world, ended)
            lines = {tuple(out.splitlines()) for _, out, _ in ended}
            self.assertEqual(len(lines), 1, lines)
            began, left = lines.pop()
            self.assertEqual(began, f"{world} ranks from {at}")
            self.assertGreaterEqual(int(left.removeprefix("left at ")), at + 10)
            at = int(left.removeprefix("left at "))
            saved = [path.name for path in self.agent.directory.glob("*ckpt*")]
            self.assertEqual(saved, [f"hpc_ckpt_{at}.ckpt"])
        self.agent.start(TRAINING, 1)
        ((code, out, err),) = self.agent.ended()
        self.assertEqual((code, out), (0, f"1 ranks from {at}\ndone with 200\n"), err)

    def test_a_fixed_batch_learns_the_same_at_any_size(self):
        self.agent.start(FIXED, 1)
        undisturbed = stepped(self.agent.ended()[0][1])
        self.agent.reports()
        self.assertEqual(list(undisturbed), list(range(1, 91)))
        for path in self.agent.directory.glob("*ckpt*"):
            path.unlink()
        found = self.agent.train_at_sizes(FIXED, ((4, 15), (1, 29), (4, 40), (2, 61), (1, 90)), stepped)
        self.assertEqual(list(found), list(undisturbed))
        for step, (weight, rate) in undisturbed.items():
            self.assertAlmostEqual(found[step][0], weight, 9, f"step {step}")
            self.assertAlmostEqual(found[step][1], rate, 9, f"step {step}")

    def test_an_accumulation_that_does_not_fit_is_refused(self):
        self.agent.start(FIXED.replace("=batches.accumulate", "=3"), 1)
        ((code, _, err),) = self.agent.ended()
        self.assertEqual(code, 1)
        self.assertIn("ValueError: expected accumulate_grad_batches=2, which is batches.accumulate, not 3", err)

    def test_what_is_reported(self):
        self.agent.start(TRAINING, 1)
        self.agent.reports_until(3)
        self.agent.ask()
        self.agent.ended()
        self.agent.reports()
        self.agent.start(TRAINING, 1)
        reports = self.agent.reports_until(5)
        self.agent.ask()
        self.agent.ended()
        *steps, saved = reports + self.agent.reports()
        self.assertEqual(sorted(saved), ["samples", "saved"])
        # Two batches of five a step.
        self.assertEqual({r["samples"] for r in steps}, {"10.0"})
        self.assertTrue(all(float(r["loss"]) >= 0 for r in steps))
        self.assertEqual({float(r["total"]) for r in steps}, {200.0})

    def test_epochs_of_a_fixed_batch_make_a_total(self):
        for epochs, total in (("7", {70.0}), ("-1", set())):
            self.agent.start(FIXED.replace("max_steps=90", f"max_epochs={epochs}"), 1)
            reports = self.agent.reports_until(3)
            self.agent.ask()
            self.agent.ended()
            self.agent.reports()
            self.assertEqual({float(r["total"]) for r in reports if "total" in r}, total)
            for path in self.agent.directory.glob("*ckpt*"):
                path.unlink()


def stepped(out):
    """Weight and learning rate after each step."""
    words = [line.split() for line in out.splitlines() if line.startswith("step ")]
    return {int(step): (float(weight), float(rate)) for _, step, weight, rate in words}


if __name__ == "__main__":
    unittest.main()
