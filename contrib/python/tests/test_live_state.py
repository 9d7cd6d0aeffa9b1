"""A state that is handed over arrives complete, in any memory layout."""

import collections
import json
import os
import pickle
import re
import sys
import tempfile
import unittest
from unittest import mock

from agent import SRC

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill._live import among, skeleton, state  # noqa: E402
from infill._live.keys import Keys  # noqa: E402
from infill.torch import ElasticSampler  # noqa: E402

#: The keys that all members know.
KEYS = Keys(b"s" * 32, 7)


class Wire(among.Among):
    """Receives rank 0's data and gives it to rank 1 in the same pieces."""

    def __init__(self):
        self.rank, self._sent = 0, collections.deque()

    def broadcast(self, tensor, source):
        if self.rank == source:
            self._sent.append(tensor.clone())
            return
        sent = self._sent.popleft()
        # As on a network, their shapes do not matter.
        assert (sent.numel(), sent.dtype) == (tensor.numel(), tensor.dtype), f"{sent.shape} was sent for {tensor.shape}"
        tensor.view(-1).copy_(sent.reshape(-1))

    def is_empty(self):
        return not self._sent


def trained(seed, transposed=False):
    """A net of 40 MB and some small tensors, with Adam's state."""
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


class Handed(unittest.TestCase):
    def check(self, source, newcomer):
        wire = Wire()
        with mock.patch.object(among.dist, "get_rank", lambda: wire.rank):
            source.send(0, wire, KEYS)
            wire.rank = 1
            newcomer.receive(0, wire, KEYS)
        self.assertTrue(wire.is_empty())
        for name, value in source.net.state_dict().items():
            self.assertTrue(torch.equal(newcomer.net.state_dict()[name], value), name)
        for mine, theirs in zip(newcomer.net.parameters(), source.net.parameters()):
            for given, taken in zip(source.optimizers, newcomer.optimizers):
                for key, value in given.state.get(theirs, {}).items():
                    self.assertTrue(torch.equal(taken.state[mine][key], value), key)


class HandingOver(Handed):
    def test_large_and_small(self):
        self.check(trained(1), trained(2))

    def test_in_another_layout(self):
        self.check(trained(1, transposed=True), trained(2))
        self.check(trained(1), trained(2, transposed=True))
        self.check(trained(1, transposed=True), trained(2, transposed=True))

    def test_the_overwritten_tensor_may_have_another_layout(self):
        wire, sent = Wire(), [torch.randn(4000, 2500), torch.tensor(7)]
        got = [torch.zeros(2500, 4000).t(), torch.tensor(0)]
        with mock.patch.object(among.dist, "get_rank", lambda: wire.rank):
            wire.broadcast_all(sent, 0)
            wire.rank = 1
            wire.broadcast_all(got, 0)
        self.assertTrue(wire.is_empty() and all(map(torch.equal, got, sent)))


def moments(source):
    """The optimizer's tensors that are as large as their parameters."""
    pairs = [(p, kept) for o in source.optimizers for p, state in o.state.items() for kept in state.values()]
    return [(p, kept) for p, kept in pairs if kept.shape == p.shape]


class Layouts(Handed):
    """Kernels that update all tensors at once expect the same layout of a parameter and its moments."""

    def convolution(self, seed, kernel=3):
        torch.manual_seed(seed)
        net = torch.nn.Conv2d(3, 4, kernel).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.001, fused=True)
        net(torch.randn(2, 3, 8, 8)).sum().backward()
        optimizer.step()
        return state.State(net, optimizer, ElasticSampler(100, 10), {})

    def test_channels_last(self):
        for kernel in (3, 1):
            newcomer = self.convolution(2, kernel)
            newcomer.optimizers[0].state.clear()
            self.check(self.convolution(1, kernel), newcomer)
            self.assertEqual(len(moments(newcomer)), 4)
            for parameter, kept in moments(newcomer):
                self.assertEqual(kept.stride(), parameter.stride())
            newcomer.optimizers[0].step()

    def test_only_layouts_without_gaps_are_believed(self):
        for shape, strides in (((2, 3), [3, 2]), ((2, 3), [0, 1]), ((2,), [1 << 40]), ((2, 3), [1]), ((2,), [-1])):
            with self.subTest(strides), self.assertRaises(skeleton.Malformed):
                skeleton.load(json.dumps({"tensor": [shape, "float32", "cpu", strides]}).encode())
        expanded = skeleton.Slot.of(torch.zeros(3).expand(2, 3))
        self.assertEqual(expanded.empty(torch.device("cpu")).stride(), (3, 1))

    def test_the_device_is_the_network_s_own(self):
        second = torch.device("cuda:1")
        self.assertEqual(state._device_of("cuda", second), second)
        self.assertEqual(state._device_of("cpu", second), torch.device("cpu"))
        source, newcomer, wanted = trained(1), trained(2), []
        own = newcomer._device = torch.device("cpu", 0)
        empty = skeleton.Slot.empty
        with mock.patch.object(skeleton.Slot, "empty", lambda slot, device: wanted.append(device) or empty(slot, "cpu")):
            self.check(source, newcomer)
        self.assertEqual(set(wanted), {own})


class Tied(Handed):
    def tied(self, seed, is_tied=True):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50, bias=False))
        if is_tied:
            net[1].weight = net[0].weight
        optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
        net(torch.arange(50)).sum().backward()
        optimizer.step()
        return state.State(net, optimizer, ElasticSampler(100, 10), {})

    def test_tied_weights_are_sent_once(self):
        source, newcomer = self.tied(1), self.tied(2)
        _, sent = state._take_apart(source.tree())
        self.assertEqual(sum(tensor.numel() > 1 for tensor in sent), 3)
        self.check(source, newcomer)
        self.assertIs(newcomer.net[0].weight, newcomer.net[1].weight)

    def test_a_copy_for_the_disk_keeps_them_tied(self):
        kept = state.copy(self.tied(1).tree())["net"]
        self.assertEqual(kept["0.weight"].data_ptr(), kept["1.weight"].data_ptr())

    def test_a_newcomer_that_has_not_tied_them_gets_both(self):
        source, wire, newcomer = self.tied(1), Wire(), self.tied(2, is_tied=False)
        newcomer.optimizers = source.optimizers
        with mock.patch.object(among.dist, "get_rank", lambda: wire.rank):
            source.send(0, wire, KEYS)
            wire.rank = 1
            newcomer.receive(0, wire, KEYS)
        for layer in newcomer.net:
            self.assertTrue(torch.equal(layer.weight, source.net[0].weight))

    def test_a_number_of_no_tensor(self):
        with self.assertRaisesRegex(RuntimeError, "number of an earlier tensor"):
            state._put_together({"net": skeleton.Same(0)}, lambda slot, name: None)
        for number in (-1, "0", True):
            with self.assertRaises(skeleton.Malformed):
                skeleton.load(json.dumps({"same": number}).encode())


class Own(torch.optim.SGD):
    """An optimizer that keeps its state in a form of its own, as those with 8 bits do."""

    def state_dict(self):
        return {**super().state_dict(), "own": 7}

    def load_state_dict(self, held):
        self.loaded = held["own"]
        super().load_state_dict({key: value for key, value in held.items() if key != "own"})


class LoadingOptimizers(Handed):
    def made(self, kind):
        net = torch.nn.Linear(3, 2)
        optimizer = kind(net.parameters(), lr=0.1, momentum=0.9)
        net(torch.ones(3)).sum().backward()
        optimizer.step()
        return state.State(net, optimizer, ElasticSampler(100, 10), {})

    def test_one_that_loads_in_its_own_way(self):
        newcomer = self.made(Own)
        self.check(self.made(Own), newcomer)
        self.assertEqual(newcomer.optimizers[0].loaded, 7)

    def test_one_with_a_hook(self):
        newcomer, called = self.made(torch.optim.SGD), []
        newcomer.optimizers[0].register_load_state_dict_post_hook(called.append)
        self.check(self.made(torch.optim.SGD), newcomer)
        self.assertEqual(len(called), 1)

    def test_several(self):
        source, newcomer = (self.made(torch.optim.SGD) for _ in range(2))
        for each in (source, newcomer):
            each.optimizers = [torch.optim.Adam([p]) for p in each.net.parameters()]
            for optimizer in each.optimizers:
                optimizer.step()
        self.check(source, newcomer)
        newcomer.optimizers = newcomer.optimizers[:1]
        with self.assertRaisesRegex(ValueError, "that of 2 optimizers, and here are 1"):
            newcomer.load(source.tree())


class Holder:
    """An object that hands out its own state."""

    def __init__(self, held):
        self.held = held

    def state_dict(self):
        return self.held

    def load_state_dict(self, held):
        self.held = held


class Strange:
    """An object that only pickle could hand over, with a call of the sender's choice."""

    def __init__(self, trace=""):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (self.trace,)


def small(**others):
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return state.State(net, optimizer, ElasticSampler(100, 10), {name: Holder(held) for name, held in others.items()})


class NoPickle(unittest.TestCase):
    def test_the_package_never_reads_a_pickle_of_a_peer(self):
        # PyTorch's collectives of objects read pickles too, and so does its load without a flag.
        reads = re.compile(r"import pickle|_object(_list)?\(|torch\.load\((?!.*weights_only=True)")
        for path in sorted(SRC.rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                self.assertIsNone(reads.search(line), f"{path.name}:{number}: {line}")


class WhatIsBelieved(unittest.TestCase):
    """Checks of a peer's data."""

    def receive(self, data, keys=KEYS):
        wire, newcomer = Wire(), small(scheduler={})
        state._send_bytes(data, 0, wire)
        wire.rank = 1
        with mock.patch.object(among.dist, "get_rank", lambda: 1):
            newcomer.receive(0, wire, keys)

    def said(self, source, keys=KEYS, **how):
        wire = Wire()
        with mock.patch.object(among.dist, "get_rank", lambda: 0):
            source.send(0, wire, keys, **how)
        return wire

    def test_a_pickle_is_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            pickled = pickle.dumps(Strange(f"{folder}/called"))
            for prefix in (b"", state.MAGIC + b"0" * 32, state.MAGIC + KEYS.tag("state", pickled)):
                with self.subTest(prefix[:20]), self.assertRaises(RuntimeError):
                    self.receive(prefix + pickled)
            self.assertEqual(os.listdir(folder), [])
            pickle.loads(pickled)
            self.assertEqual(os.listdir(folder), ["called"])

    def test_an_older_package_is_not_a_member(self):
        with self.assertRaisesRegex(state.Unsuited, "another version of infill"):
            self.receive(pickle.dumps({}))

    def test_a_peer_with_another_secret_or_epoch_is_not_a_member(self):
        data = skeleton.dump({"net": {}})
        for keys in (Keys(None, 7), Keys(b"t" * 32, 7), Keys(b"s" * 32, 6)):
            with self.assertRaisesRegex(RuntimeError, "not sent by a member"):
                self.receive(state.MAGIC + keys.tag("state", data) + data)
        with self.assertRaisesRegex(RuntimeError, "not sent by a member"):
            self.receive(state.MAGIC + KEYS.tag("state", data) + data + b" ")

    def test_sizes_are_bounded(self):
        for size in (-1, 0, state.MOST_BYTES + 1, 1 << 62):
            wire = Wire()
            wire.broadcast(torch.tensor([size]), 0)
            wire.rank = 1
            with self.subTest(size), self.assertRaisesRegex(RuntimeError, "bytes to say of its state"):
                small().receive(0, wire, KEYS)
        data = skeleton.dump({"net": {"a": skeleton.Slot((1 << 40,), torch.float32, "cpu")}})
        with self.assertRaisesRegex(RuntimeError, "bytes to hand over"):
            self.receive(state.MAGIC + KEYS.tag("state", data) + data)

    def test_unsuited_values_are_named(self):
        source = small(scheduler={"rates": [0.1, {"odd": Strange()}]})
        self.assertRegex(source.inexpressible(), "^others/scheduler/rates/1/odd: a .*Strange cannot be handed over")
        with self.assertRaisesRegex(state.Unsuited, "others/scheduler/rates/1/odd"):
            self.said(source)
        self.assertEqual(small(scheduler={"rates": [0.1]}).inexpressible(), "")

    def test_without_an_agent_each_keeps_its_unsuited_values(self):
        wire = self.said(small(scheduler={"odd": Strange()}, scaler={"scale": 2.0}), leave_out=True)
        newcomer = small(scheduler={"mine": 1}, scaler={"scale": 1.0})
        wire.rank = 1
        with mock.patch.object(among.dist, "get_rank", lambda: 1):
            newcomer.receive(0, wire, KEYS)
        self.assertEqual((newcomer.others["scheduler"].held, newcomer.others["scaler"].held), ({"mine": 1}, {"scale": 2.0}))


if __name__ == "__main__":
    unittest.main()
