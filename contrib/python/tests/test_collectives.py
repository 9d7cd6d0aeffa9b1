"""The table of collectives, on this machine."""

import csv
import os
import subprocess
import sys
import unittest

from agent import LONG_SECS, NO_GPUS, SRC, free_port

sys.path.insert(0, str(SRC))

try:
    from infill import collectives
except ImportError:
    collectives = None


@unittest.skipIf(collectives is None, "PyTorch is not installed")
class Collectives(unittest.TestCase):
    def test_groups_are_packed_and_spread(self):
        of = lambda hosts: [(group.ranks, group.nodes) for group in collectives.groups(hosts.split())]  # noqa: E731
        self.assertEqual(of("a a"), [((0, 1), 1)])
        self.assertEqual(
            of("a a a b b b"),
            [((0, 1), 1), ((0, 3), 2), ((0, 1, 2, 3), 2), ((0, 1, 3, 4), 2), ((0, 1, 2, 3, 4, 5), 2)],
        )
        self.assertEqual(of("a"), [])

    def test_sizes(self):
        self.assertEqual(collectives._bytes("4,64K,2M"), [4, 65536, 2097152])
        for text in ("", "3", "x", "8G", "1M,"):
            with self.assertRaises(Exception, msg=text):
                collectives._bytes(text)

    def test_a_table_by_three_ranks_of_srun(self):
        self.check_table(NO_GPUS)

    @unittest.skipIf(collectives is None or not collectives.torch.cuda.is_available(), "there is no GPU")
    def test_a_table_by_nccl(self):
        self.check_table({"NCCL_SOCKET_IFNAME": "lo"})

    def check_table(self, machine):
        """The table of three ranks on two nodes."""
        words = [sys.executable, "-B", "-m", "infill.collectives", "--bytes=1K,256K"]
        shared = {"SLURM_NTASKS": "3", "MASTER_PORT": str(free_port()), "PYTHONPATH": str(SRC), **machine}
        ranks = []
        for rank in range(3):
            # NCCL refuses two ranks of one host on one GPU.
            own = {"SLURM_PROCID": str(rank), "SLURMD_NODENAME": "ab"[rank // 2], "NCCL_HOSTID": str(rank)}
            environment = {**os.environ, **shared, **own}
            ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
        first, *others = [process.communicate(timeout=LONG_SECS)[0] for process in ranks]
        self.assertEqual([process.returncode for process in ranks], [0, 0, 0])
        self.assertEqual(others, ["", ""])
        table = list(csv.DictReader(first.splitlines()))
        self.assertEqual({(row["world"], row["nodes"]) for row in table}, {("2", "1"), ("2", "2"), ("3", "2")})
        self.assertLessEqual({"all_reduce", "all_gather", "point_to_point"}, {row["op"] for row in table})
        self.assertEqual({row["bytes"] for row in table}, {"1024", "262144"})
        self.assertTrue(all(0 < float(row["seconds_median"]) < 60 for row in table))


if __name__ == "__main__":
    unittest.main()
