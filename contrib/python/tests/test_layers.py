"""Profiles of a model's layers."""

import json
import sys
import tempfile
import time
import unittest
from pathlib import Path

from agent import SRC

sys.path.insert(0, str(SRC))

import infill  # noqa: E402

try:
    import torch
    from torch import nn
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "no PyTorch")
class Layers(unittest.TestCase):
    """profile_layers."""

    def model(self):
        """Two blocks in a list and a head that shares its weights with the embedding.

        One of the blocks takes 20 ms more in each direction.
        """

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                time.sleep(0.02)
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                time.sleep(0.02)
                return gradient

        class Block(nn.Module):
            def __init__(self, slow):
                super().__init__()
                self.slow, self.linear, self.norm = slow, nn.Linear(8, 8), nn.BatchNorm1d(8)

            def forward(self, x):
                x = self.norm(self.linear(x))
                return Slow.apply(x) if self.slow else x

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(10, 8)
                self.blocks = nn.ModuleList([Block(False), Block(True)])
                self.drop = nn.Dropout(0.5)
                self.head = nn.Linear(8, 10, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, x):
                x = self.embed(x)
                for block in self.blocks:
                    x = block(x)
                return self.head(self.drop(x))

        torch.manual_seed(1)
        return Net()

    def test_each_layer_has_its_times_parameters_and_outputs(self):
        profile = infill.profile_layers(self.model(), torch.arange(4))
        self.assertEqual((profile.device, profile.batch, profile.element_bytes), ("cpu", 4, 4))
        self.assertEqual([layer.name for layer in profile.layers], ["embed", "blocks.0", "blocks.1", "drop", "head"])
        self.assertEqual([layer.parameters for layer in profile.layers], [80, 88, 88, 0, 0], "shared ones count once")
        self.assertEqual([layer.activation_bytes for layer in profile.layers], [128, 128, 128, 128, 160])
        slow = profile.layers[2]
        self.assertTrue(0.02 <= slow.forward_secs and 0.02 <= slow.backward_secs, slow)
        others = [layer for layer in profile.layers if layer is not slow]
        self.assertTrue(all(layer.forward_secs < 0.02 for layer in others), others)
        self.assertTrue(all(layer.backward_secs > 0 for layer in profile.layers))

    def test_the_model_is_unchanged_afterwards(self):
        model = self.model()
        model.head.weight.grad = torch.ones(10, 8)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        random = torch.random.get_rng_state()
        infill.profile_layers(model, [torch.arange(4)])
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertTrue(torch.equal(model.head.weight.grad, torch.ones(10, 8)))
        self.assertIsNone(model.blocks[0].linear.weight.grad)
        self.assertTrue(torch.equal(torch.random.get_rng_state(), random))
        self.assertTrue(model.training and not model.head._forward_pre_hooks)

    def test_the_file(self):
        profile = infill.profile_layers(self.model(), {"x": torch.arange(6)}, samples=3)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "layers.json"
            profile.write(path)
            written = json.loads(path.read_text())
        self.assertEqual((written["version"], written["batch"], len(written["layers"])), (1, 3, 5))
        self.assertEqual(
            sorted(written["layers"][0]),
            ["activation_bytes", "backward_secs", "forward_secs", "name", "parameters"],
        )

    def test_blocks_inside_a_model_that_is_wrapped(self):
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 3, enable_nested_tensor=False)
        wrapped = nn.Sequential()
        wrapped.add_module("encoder", encoder)
        wrapped.add_module("head", nn.Linear(16, 4))
        names = [layer.name for layer in infill.profile_layers(wrapped, torch.zeros(5, 2, 16)).layers]
        self.assertEqual(names, ["encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "head"])

    def test_invalid_models_and_batches_are_refused(self):
        with self.assertRaisesRegex(TypeError, "expected a torch.nn.Module, not int"):
            infill.profile_layers(7, torch.zeros(1))
        with self.assertRaisesRegex(TypeError, "no tensor with samples"):
            infill.profile_layers(self.model(), [3])
        with self.assertRaisesRegex(ValueError, "samples = 0"):
            infill.profile_layers(self.model(), torch.arange(4), samples=0)


if __name__ == "__main__":
    unittest.main()
