"""The part of a state without tensors goes from process to process as data."""

import collections
import json
import math
import random
import sys
import unittest

from agent import SRC

sys.path.insert(0, str(SRC))

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from infill._live.skeleton import MOST_LEVELS, Inexpressible, Malformed, Slot, dump, load  # noqa: E402

#: A value of each kind.
WHOLE = {
    "text": "ä\ud800\n",
    7: [True, False, None, 1 << 200, -3],
    1.5: (0.1, -0.0, math.inf, ()),
    None: {"bytes": b"\x00\xff", "set": {1, "a"}, "complex": complex(1.0, -2.0)},
    (1, "a"): [Slot((2, 0, 3), torch.bfloat16, "cuda"), torch.Size((2, 3)), torch.float64],
    True: {},
}


def nested(levels):
    tree = []
    for _ in range(levels - 1):
        tree = [tree]
    return tree


class RoundTrips(unittest.TestCase):
    def test_each_kind(self):
        read = load(dump(WHOLE))
        self.assertEqual(read, WHOLE)
        self.assertEqual([type(key) for key in read], [type(key) for key in WHOLE])
        self.assertEqual(math.copysign(1.0, read[1.5][1]), -1.0)
        self.assertIs(type(read[(1, "a")][1]), torch.Size)
        self.assertTrue(math.isnan(load(dump(math.nan))))

    def test_what_schedulers_and_optimizers_hold(self):
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        for scheduler in (
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
            torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10),
            torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        ):
            self.assertEqual(load(dump(scheduler.state_dict())), scheduler.state_dict())
        self.assertEqual(load(dump(optimizer.state_dict())), optimizer.state_dict())

    def test_numbers_of_numpy(self):
        try:
            import numpy
        except ImportError:
            raise unittest.SkipTest("NumPy is not installed") from None
        one, many = load(dump([numpy.float32(0.1), numpy.arange(6, dtype="int16").reshape(2, 3)]))
        self.assertEqual((type(one), one), (numpy.float32, numpy.float32(0.1)))
        self.assertEqual((many.dtype, many.tolist()), (numpy.int16, [[0, 1, 2], [3, 4, 5]]))
        many[0] = 9
        with self.assertRaisesRegex(Inexpressible, "numpy.ndarray"):
            dump(numpy.array([object()]))

    def test_what_cannot_be_expressed_is_named(self):
        pair = collections.namedtuple("pair", "a b")
        for value, kind in ((object(), "builtins.object"), (len, "builtin_function"), (pair(1, 2), "pair"), (2**5000, "bits")):
            with self.assertRaisesRegex(Inexpressible, f"^a/0/1: .*{kind}"):
                dump({"a": [(0, value)]})
        circle = []
        circle.append(circle)
        for deep in (circle, nested(MOST_LEVELS + 1)):
            with self.assertRaisesRegex(Inexpressible, "levels"):
                dump(deep)
        self.assertEqual(load(dump(nested(MOST_LEVELS))), nested(MOST_LEVELS))


class Hostile(unittest.TestCase):
    """All bytes are read as a tree of plain values, or as malformed."""

    def test_malformed_trees(self):
        for text in (
            "",
            "\xff",
            "{",
            "[" * 100_000,
            '{"dict":' * 300 + "[]" + "}" * 300,
            "9" * 10_000,
            "{}",
            '{"dict":[],"tuple":[]}',
            '{"object":"os.system"}',
            '{"__reduce__":["os.system",["id"]]}',
            '{"dict":7}',
            '{"dict":[[1]]}',
            '{"dict":[[[],1]]}',
            '{"dict":[[{"dict":[]},1]]}',
            '{"set":[[]]}',
            '{"tuple":"abc"}',
            '{"bytes":"not base64"}',
            '{"bytes":7}',
            '{"complex":[1.0]}',
            '{"complex":["a",1.0]}',
            '{"size":[-1]}',
            '{"size":[true]}',
            '{"size":[1e3]}',
            '{"dtype":"nn"}',
            '{"dtype":"nn.Module"}',
            '{"dtype":"__class__"}',
            '{"tensor":[[1],"float32"]}',
            '{"tensor":[[1],"float32","cuda:0/../x"]}',
            '{"tensor":[[1],"float32",["cpu"]]}',
            '{"tensor":[[281474976710656],"float32","cpu"]}',
            json.dumps({"tensor": [[1] * 65, "float32", "cpu"]}),
            '{"numpy":["|O8",null,""]}',
            '{"numpy":["<f4",null,""]}',
            '{"numpy":["<f4",[2],"AAAA"]}',
            '{"numpy":["<f3",[0],""]}',
            json.dumps(nested(MOST_LEVELS + 1)),
        ):
            with self.subTest(text[:60]), self.assertRaises(Malformed):
                load(text.encode("latin-1"))

    def test_damaged_ones(self):
        chance, whole = random.Random(7), dump(WHOLE)
        for _ in range(20_000):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                how = chance.randrange(3)
                if how == 0:
                    data[at] = chance.choice(b'{}[]",:0123456789eE+-."tfn\\\x00\xff')
                elif how == 1:
                    del data[at : at + chance.randint(1, 9)]
                else:
                    data[at:at] = whole[chance.randrange(len(whole)) :][: chance.randint(1, 30)]
            try:
                tree = load(bytes(data))
            except Malformed:
                continue
            self.assert_plain(tree)

    def assert_plain(self, tree):
        if isinstance(tree, dict):
            tree = [*tree, *tree.values()]
        if isinstance(tree, (list, tuple, set)):
            for each in tree:
                self.assert_plain(each)
        else:
            plain = (type(None), bool, int, float, str, bytes, complex, Slot, torch.dtype)
            self.assertTrue(type(tree) in plain or type(tree).__module__ == "numpy", type(tree))


if __name__ == "__main__":
    unittest.main()
