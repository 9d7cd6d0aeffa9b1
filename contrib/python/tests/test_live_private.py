"""What live changes need of PyTorch's inside, and a PyTorch that lacks it."""

import pathlib
import re
import sys
import types
import unittest
import unittest.mock

from agent import SRC

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill._live import torch_private  # noqa: E402
from infill._live.torch_private import NCCL_SYMBOLS, SHUTDOWN_SYMBOLS, SYMBOLS, find_missing  # noqa: E402


def stub(*names):
    """A library that has these names and nothing else."""
    library = types.SimpleNamespace()
    for name in names:
        here = library
        for part in name.split("."):
            here.__dict__.setdefault(part, types.SimpleNamespace())
            here = getattr(here, part)
    return library


class Finding(unittest.TestCase):
    def test_a_library_that_has_all(self):
        for shutdown in SHUTDOWN_SYMBOLS:
            whole = stub(*SYMBOLS, *NCCL_SYMBOLS, shutdown)
            self.assertEqual((find_missing(whole, False), find_missing(whole, True)), ([], []))

    def test_each_that_is_missing_is_named(self):
        for lacks in SYMBOLS:
            others = [name for name in SYMBOLS if name != lacks]
            library = stub(*others, *NCCL_SYMBOLS, *SHUTDOWN_SYMBOLS)
            self.assertEqual(find_missing(library, False), [f"torch.{lacks}"])
            self.assertEqual(find_missing(library, True), [f"torch.{lacks}"])

    def test_what_only_nccl_needs(self):
        self.assertEqual(find_missing(stub(*SYMBOLS), False), [])
        expected = [f"torch.{name}" for name in (*NCCL_SYMBOLS, SHUTDOWN_SYMBOLS[0])]
        self.assertEqual(find_missing(stub(*SYMBOLS), True), expected)

    def test_the_installed_library_has_what_gloo_needs(self):
        self.assertEqual(torch_private.why_no_live_changes(False), "")

    def test_the_reason_names_symbol_and_version(self):
        with unittest.mock.patch.dict(torch_private._MISSING, {True: ["torch.a", "torch.b"]}):
            self.assertEqual(
                torch_private.why_no_live_changes(True), f"PyTorch {torch.__version__} has no torch.a, torch.b"
            )

    def test_no_other_module_looks_inside(self):
        inside = re.compile(r"distributed_c10d|_world\b|ddp_module|\._(register|verify|sync_module|get_backend|abort_process)")
        live = pathlib.Path(SRC, "infill", "_live")
        users = [path.name for path in live.glob("*.py") if inside.search(path.read_text())]
        self.assertEqual(users, ["torch_private.py"])


if __name__ == "__main__":
    unittest.main()
