"""How a global batch is divided among ranks."""

import os
import sys
import unittest
from unittest import mock

from agent import SRC

sys.path.insert(0, str(SRC))

from infill._fixed_batch import Division, divide  # noqa: E402


class Divide(unittest.TestCase):
    def test_the_global_batch_is_the_same_at_any_size(self):
        for ranks in (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192):
            for most in (1, 5, 8, 192, None):
                division = divide(192, most, ranks)
                self.assertEqual(ranks * division.micro_batch * division.accumulate, 192)
                self.assertLessEqual(division.micro_batch, most or 192)

    def test_micro_batches_are_as_large_as_possible(self):
        self.assertEqual(divide(256, 32, 2), Division(32, 4))
        self.assertEqual(divide(256, 30, 2), Division(16, 8))
        self.assertEqual(divide(256, None, 2), Division(128, 1))

    def test_a_batch_that_does_not_divide_is_refused_with_what_does(self):
        with mock.patch.dict(os.environ, {"INFILL_GENERATION": "1", "LOCAL_WORLD_SIZE": "2"}):
            with self.assertRaisesRegex(ValueError, "12 does not divide by 8 ranks; .*=infill:nodes=1,2,3,6$"):
                divide(12, 4, 8)
        with self.assertRaisesRegex(ValueError, "possible numbers: 1,5$"):
            divide(5, 4, 3)

    def test_nonsense_is_refused(self):
        for batch, most in ((0, 1), (-8, 1), (8, 0)):
            with self.assertRaisesRegex(ValueError, "expected batches of at least one sample"):
                divide(batch, most, 1)


if __name__ == "__main__":
    unittest.main()
