"""What is handed over arrives whole, however it lies in memory."""

import collections
import sys
import unittest
from unittest import mock

from agent import SRC

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill._live import among, state  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402


class Wire(among.Among):
    """Takes what rank 0 gives, and gives it to rank 1 in the same pieces."""

    def __init__(self):
        self.rank, self._sent = 0, collections.deque()

    def broadcast(self, tensor, source):
        if self.rank == source:
            self._sent.append(tensor.clone())
            return
        sent = self._sent.popleft()
        # As on a wire, their shapes do not matter.
        assert (sent.numel(), sent.dtype) == (tensor.numel(), tensor.dtype), f"{sent.shape} was sent for {tensor.shape}"
        tensor.view(-1).copy_(sent.reshape(-1))

    def is_empty(self):
        return not self._sent


def trained(seed, transposed=False):
    """A net of 40 MB and some small tensors, with what Adam keeps of it."""
    torch.manual_seed(seed)
    net = torch.nn.Module()
    net.wide = torch.nn.Parameter(torch.randn(2500, 4000).t() if transposed else torch.randn(4000, 2500))
    net.small = torch.nn.Linear(3, 2)
    net.register_buffer("count", torch.tensor(seed))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return state.State(net, optimizer, ElasticSampler(100, 10), {})


class HandingOver(unittest.TestCase):
    def check(self, source, newcomer):
        wire = Wire()
        with mock.patch.object(among.dist, "get_rank", lambda: wire.rank):
            source.send(0, wire)
            wire.rank = 1
            newcomer.receive(0, wire)
        self.assertTrue(wire.is_empty())
        for name, value in source.net.state_dict().items():
            self.assertTrue(torch.equal(newcomer.net.state_dict()[name], value), name)
        for mine, theirs in zip(newcomer.net.parameters(), source.net.parameters()):
            for key, value in source.optimizer.state[theirs].items():
                self.assertTrue(torch.equal(newcomer.optimizer.state[mine][key], value), key)

    def test_large_and_small(self):
        self.check(trained(1), trained(2))

    def test_in_another_layout(self):
        self.check(trained(1, transposed=True), trained(2))
        self.check(trained(1), trained(2, transposed=True))
        self.check(trained(1, transposed=True), trained(2, transposed=True))

    def test_what_is_written_over_may_lie_otherwise(self):
        wire, sent = Wire(), [torch.randn(4000, 2500), torch.tensor(7)]
        got = [torch.zeros(2500, 4000).t(), torch.tensor(0)]
        with mock.patch.object(among.dist, "get_rank", lambda: wire.rank):
            wire.broadcast_all(sent, 0)
            wire.rank = 1
            wire.broadcast_all(got, 0)
        self.assertTrue(wire.is_empty() and all(map(torch.equal, got, sent)))


if __name__ == "__main__":
    unittest.main()
