"""Execution plans that are declared in Python."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from agent import SRC

sys.path.insert(0, str(SRC))

import infill  # noqa: E402

try:
    import tomllib
except ImportError:
    tomllib = None

try:
    import torch
    from torch import nn
except ImportError:
    torch = None

WAYS = {
    "ddp": {},
    "zero-3": {"zero": 3, "offload": True, "nodes": "2-8", "types": ("a100", "h100")},
    "tp2": {"tp": 2, "args": ["--note", 'a "word" \\ ü\n'], "env": {"A.B": "1\x7f"}},
}

#: The keys that infill reads in all of them.
LISTED = [{"name": name, **way} for name, way in WAYS.items()]


class TheFile(unittest.TestCase):
    """plans, as text for `infill run --plans FILE`."""

    def test_a_plan_in_words(self):
        text = infill.plans(ddp={}, zero3={"zero": 3, "checkpointing": True, "env": {"A": "b"}})
        first, second = '[[plan]]\nname = "ddp"\n', '[[plan]]\nname = "zero3"\nzero = 3\ncheckpointing = true\n'
        self.assertEqual(text, f'{first}\n{second}[plan.env]\n"A" = "b"\n')

    @unittest.skipIf(tomllib is None, "Python 3.11 reads TOML")
    def test_a_written_file_can_be_read(self):
        self.assertEqual(tomllib.loads(infill.plans(WAYS)), json.loads(json.dumps({"plan": LISTED})))

    def test_invalid_values_are_refused(self):
        expected = "plan 'ddp' has tpp, zeroes; expected nodes, types, tp, .*, env"
        with self.assertRaisesRegex(TypeError, expected):
            infill.plans(ddp={"tpp": 2, "zeroes": 1})


class Running(unittest.TestCase):
    """run, with a program instead of `infill`."""

    def words(self, call):
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory, "infill")
            program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
            program.chmod(0o755)
            code = f"import infill\nWAYS = {WAYS!r}\n{call}\nprint('came back')"
            environment = {**os.environ, "PATH": directory, "PYTHONPATH": str(SRC)}
            done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
        return json.loads(done.stdout)

    def test_it_replaces_itself_by_infill_run(self):
        flags = "nodes='1-8', at_least=40.5, alone=True, no_prefix=False"
        program, plans, *others = self.words(f"infill.run('python', 'train.py', '--lr=1', plans=WAYS, {flags})")
        self.assertEqual(program, "run")
        self.assertEqual(json.loads(plans.removeprefix("--plans=")), json.loads(json.dumps({"plan": LISTED})))
        self.assertEqual(others, ["--nodes=1-8", "--at-least=40.5", "--alone", "--", "python", "train.py", "--lr=1"])

    def test_facts_of_the_model_are_passed_on(self):
        known = "infill.SuggestedPlans(infill.ModelFacts(1.5, layers=3), {'ddp': {}})"
        _, plans, *_ = self.words(f"infill.run('train', plans={known})")
        written = json.loads(plans.removeprefix("--plans="))
        self.assertEqual(written, {"model": {"params_mi": 1.5, "layers": 3}, "plan": [{"name": "ddp"}]})

    def test_plans_are_not_needed(self):
        self.assertEqual(self.words("infill.run('train')"), ["run", "--", "train"])


class Config:
    """A configuration in the form of Hugging Face."""

    def __init__(self, **values):
        self.__dict__.update(values)


def gpt(heads=4, hidden=32, layers=3, config=None):
    """A hand-written transformer, with its own attention."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_head, self.qkv, self.out = heads, nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(hidden), Attention()
            self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(50, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = nn.Linear(hidden, 50, bias=False)
            self.head.weight = self.tokens.weight
            if config:
                self.config = config

    return Gpt()


def read(model):
    facts = infill.plans_of(model).facts
    return facts.layers, facts.hidden, facts.heads


UNKNOWN = (None, None, None)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OfAModel(unittest.TestCase):
    """plans_of."""

    def test_a_hand_written_transformer_is_read(self):
        model = gpt()
        facts = infill.plans_of(model, global_batch=8, sequence=16).facts
        # A block: attention 4 × (32² + 32), a norm 64, two layers 2 × 4 × 32² + 5 × 32; embeddings once.
        parameters = 3 * (4 * (32 * 32 + 32) + 64 + 8 * 32 * 32 + 5 * 32) + 50 * 32
        self.assertEqual(facts, infill.ModelFacts(parameters / 1e6, 3, 32, 4, 16, 8))

    def test_torchs_own_transformer_is_read(self):
        layer = nn.TransformerEncoderLayer(48, nhead=6, dim_feedforward=64)
        self.assertEqual(read(nn.TransformerEncoder(layer, 5)), (5, 48, 6))
        self.assertEqual(read(nn.Sequential(nn.Embedding(9, 48), layer)), (1, 48, 6))
        self.assertEqual(read(nn.Transformer(48, 6, 2, 3, 64)), (5, 48, 6), "layers of encoder and decoder")
        self.assertEqual(read(nn.MultiheadAttention(48, 6)), (None, 48, 6))

    def test_a_config_of_hugging_face_comes_first(self):
        config = Config(num_hidden_layers=12, hidden_size=768, num_attention_heads=16)
        self.assertEqual(read(gpt(config=config)), (12, 768, 16))
        self.assertEqual(read(gpt(config={"n_layer": 7, "n_embd": 64, "n_head": 8})), (7, 64, 8))
        wrapped = nn.Module()
        wrapped.module = gpt(config=config)
        self.assertEqual(read(wrapped), (12, 768, 16))
        self.assertEqual(read(gpt(config=Config(hidden_size=[32, 64], n_head=True, n_layer=0))), (3, 32, 4))
        both = Config(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, is_encoder_decoder=True)
        self.assertEqual(read(gpt(config=both)), (3, 32, 4), "num_hidden_layers is the encoder's alone")

    def test_unknown_facts_stay_unknown(self):
        convolutions = nn.Sequential(*(nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)) for _ in range(4)))
        self.assertEqual(read(nn.Sequential(convolutions, nn.Flatten(), nn.Linear(8, 2))), UNKNOWN)
        self.assertEqual(read(nn.ModuleList(nn.Linear(8, 8) for _ in range(4))), UNKNOWN)
        stages = nn.ModuleList([*gpt(4, 32, 2).blocks, *gpt(8, 64, 2).blocks])
        self.assertEqual(read(nn.Sequential(stages)), UNKNOWN, "layers that differ")
        text = infill.plans_of(convolutions).text()
        self.assertEqual(text.split("\n\n")[0], f"[model]\nparams_mi = {4 * (8 * 8 * 9 + 8 + 16) / 1e6!r}")
        self.assertNotIn("tp", text)

    def test_plans_divide_heads_hidden_size_and_batch(self):
        def ways(**of_model):
            return infill.plans_of(gpt(**of_model), global_batch=12, nodes="1-8").ways

        plain = {
            "ddp": {"nodes": "1,2,3,4,6"},
            "zero1": {"zero": 1, "nodes": "2,3,4,6"},
            "fsdp": {"zero": 3, "nodes": "2,3,4,6"},
            "tp2": {"tp": 2, "nodes": "2,4,6,8"},
            "tp4": {"tp": 4, "nodes": "4,8"},
        }
        lean = {f"{name}-gc": {**way, "checkpointing": True} for name, way in plain.items()}
        added = {"ddp": "1,3", "zero1": "3", "fsdp": "3", "tp2": "2,6", "tp4": "4"}
        slow = {f"{name}-ga4": {**plain[name], "accumulate": 4, "nodes": nodes} for name, nodes in added.items()}
        self.assertEqual(ways(), {**plain, **lean, **slow})
        self.assertEqual(list(ways())[:6], ["ddp", "zero1", "fsdp", "tp2", "tp4", "ddp-gc"])
        degrees = [n for n in (2, 4, 8) if f"tp{n}" in ways(heads=6, hidden=48)]
        self.assertEqual(degrees, [2])
        self.assertEqual([n for n in (2, 4, 8) if f"tp{n}" in ways(heads=8, hidden=36, layers=1)], [2, 4])

    def test_tensor_parallelism_stays_on_a_node(self):
        found = infill.plans_of(gpt(heads=8), global_batch=48, nodes="1-2", ranks=6, accumulate=1).ways
        self.assertEqual(found["tp2"], {"tp": 2, "nodes": "1,2"})
        self.assertEqual([name for name in found if name.startswith("tp")], ["tp2", "tp2-gc"])

    def test_sizes_that_nothing_limits_stay_short(self):
        found = infill.plans_of(gpt(), nodes="1-10000").ways
        self.assertEqual((found["ddp"]["nodes"], found["fsdp"]["nodes"]), ("1-10000", "2-10000"))
        self.assertEqual(found["tp4"]["nodes"], "4-10000")
        self.assertNotIn("tp4", infill.plans_of(gpt(), nodes="1-3").ways)
        self.assertNotIn("nodes", infill.plans_of(gpt()).ways["ddp"])
        many = infill.plans_of(gpt(heads=8)).ways
        self.assertEqual((len(many), list(many)[-1]), (16, "tp2-ga4"), "infill reads no more")

    @unittest.skipIf(tomllib is None, "Python 3.11 reads TOML")
    def test_the_file_holds_the_facts_and_the_plans(self):
        found = infill.plans_of(gpt(), global_batch=8, sequence=16, nodes="1-4")
        with tempfile.TemporaryDirectory() as directory:
            found.write(Path(directory, "plans.toml"))
            written = tomllib.loads(Path(directory, "plans.toml").read_text())
        model = {"params_mi": found.facts.params_mi, "layers": 3, "hidden": 32, "heads": 4, "sequence": 16}
        self.assertEqual(written["model"], {**model, "global_batch": 8})
        self.assertEqual(written["plan"], [{"name": name, **way} for name, way in found.ways.items()])

    def test_invalid_arguments(self):
        for why, given in [
            ("global_batch = 0: expected a positive integer", {"global_batch": 0}),
            ("sequence = 1.5: expected a positive integer", {"sequence": 1.5}),
            ("ranks = 0: expected a positive number", {"ranks": 0}),
            ("nodes = '4-2': expected sizes of 1 to 10000 nodes", {"nodes": "4-2"}),
            ("nodes = '1,x': expected sizes", {"nodes": "1,x"}),
            ("no plan divides a global batch of 7 at sizes 3 with 1", {"global_batch": 7, "nodes": "3"}),
        ]:
            with self.assertRaisesRegex(ValueError, why):
                infill.plans_of(gpt(), **given)
        with self.assertRaisesRegex(TypeError, "expected a torch.nn.Module, not dict"):
            infill.plans_of({})
        with self.assertRaisesRegex(ValueError, "Tanh has no parameters"):
            infill.plans_of(nn.Tanh())
        with self.assertRaisesRegex(ValueError, "parameter 0.weight has no shape yet: run the model once"):
            infill.plans_of(nn.Sequential(nn.LazyLinear(4)))


if __name__ == "__main__":
    unittest.main()
