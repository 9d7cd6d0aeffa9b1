"""Tests the accounting on recorded and made-up sacct output."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import accounting  # noqa: E402


def line(id, name, partition, nodes, start, end, state="COMPLETED", submit=0, exit_code="0:0", tres="cpu=2"):
    """A line as sacct prints it."""
    return f"{id}|{name}|alice|{partition}|{state}|{exit_code}|{nodes}|{tres}|{submit}|{start}|{end}"


class Parsing(unittest.TestCase):
    """Lines of sacct."""

    def test_host_lists(self):
        self.assertEqual(accounting.hosts("n[1-3,7],m2"), ["n1", "n2", "n3", "n7", "m2"])
        self.assertEqual(accounting.hosts("node[008-010]"), ["node008", "node009", "node010"])
        self.assertEqual(accounting.hosts("n4"), ["n4"])
        self.assertEqual(accounting.hosts("None assigned"), [])
        self.assertEqual(accounting.hosts(""), [])

    def test_states_and_times_that_are_not_there(self):
        text = line(7, "wing:3", "infill", "None assigned", "Unknown", "Unknown", "CANCELLED by 6100")
        (record,) = accounting.parse(text)
        self.assertEqual((record.state, record.start, record.end, record.nodes), ("CANCELLED", None, None, ()))

    def test_a_name_may_hold_a_bar(self):
        (record,) = accounting.parse(line(7, "a|b", "main", "n1", 1, 2))
        self.assertEqual((record.name, record.nodes, record.end), ("a|b", ("n1",), 2))


class Gpus(unittest.TestCase):
    """Records of shared nodes, GPU by GPU."""

    def test_jobs_of_one_node_have_gpus_of_their_own(self):
        def gpus(count):
            return f"cpu=4,gres/gpu:a100={count},gres/gpu={count},mem=4G"

        lines = [
            line(1, "a", "main", "n1", 0, 10, tres=gpus(2)),
            line(2, "b", "infill", "n1", 5, 20, tres=gpus(1)),
            line(3, "c", "main", "n[1-2]", 10, 20, tres=gpus(3)),
            line(4, "d", "main", "n1", 11, "Unknown", tres="cpu=1"),
            line(5, "e", "main", "None assigned", "Unknown", "Unknown", tres=""),
        ]
        places = [" ".join(r.nodes) for r in accounting.by_gpu(accounting.parse("\n".join(lines)), 4)]
        self.assertEqual(places, ["n1:0 n1:1", "n1:2", "n1:0 n1:1 n2:0", "", ""])
        # The second one has begun before the accounting closes the first.
        lines = [line(1, "a", "infill", "n1", 0, 11, tres=gpus(1)), line(2, "b", "main", "n1", 10, 20, tres=gpus(1))]
        places = [r.nodes for r in accounting.by_gpu(accounting.parse("\n".join(lines)), 1)]
        self.assertEqual(places, [("n1:0",), ("n1:0",)])


class Intervals(unittest.TestCase):
    """Arithmetic with intervals."""

    def test_merge(self):
        self.assertEqual(accounting.merge([(5, 7), (1, 3), (3, 4), (6, 9), (8, 8)]), [(1, 4), (5, 9)])

    def test_gaps_are_what_is_left(self):
        self.assertEqual(accounting.gaps([(10, 20), (30, 40)], (0, 50)), [(0, 10), (20, 30), (40, 50)])
        self.assertEqual(accounting.gaps([(0, 50)], (0, 50)), [])
        self.assertEqual(accounting.gaps([], (0, 50)), [(0, 50)])


class Harvesting(unittest.TestCase):
    """Gaps, and the harvested parts of them."""

    def check(self, lines, nodes, period, gap, harvested, short):
        got = accounting.harvest(accounting.parse("\n".join(lines)), nodes, period)
        self.assertEqual(
            (got.gap_node_seconds, got.harvested_node_seconds, got.short_gap_node_seconds), (gap, harvested, short)
        )

    def test_leads_and_wings_count_in_their_gaps_only(self):
        lines = [
            line(1, "main-01", "main", "n[1-2]", 100, 200),
            line(2, "spirals", "infill", "n1", 10, 99, "REQUEUED"),
            line(2, "spirals", "infill", "n2", 205, 300),
            line(3, "wing:2", "infill", "n2", 20, 101),
        ]
        # n1: gaps 0-100 (89 had) and 200-300 (none); n2: 0-100 (80, one second overlaps the main job's), 200-300 (95).
        self.check(lines, ["n1", "n2"], (0, 300), 400, 89 + 80 + 95, 0)

    def test_short_gaps_do_not_count(self):
        lines = [
            line(1, "a", "main", "n1", 30, 100),
            line(2, "b", "main", "n1", 131, 200),
            line(3, "x", "infill", "n1", 0, 131),
        ]
        self.check(lines, ["n1"], (0, 200), 31, 31, 30)

    def test_a_shrunk_wing_has_each_node_as_long_as_it_had_it(self):
        lines = [
            line(3, "wing:2", "infill", "n[1-3]", 0, 50, "RESIZING"),
            line(3, "wing:2", "infill", "n1", 50, 80),
        ]
        self.check(lines, ["n1", "n2", "n3"], (0, 100), 300, 80 + 50 + 50, 0)

    def test_what_has_not_ended_runs_to_the_end(self):
        self.check([line(3, "x", "infill", "n1", 40, "Unknown", "RUNNING")], ["n1"], (0, 100), 100, 60, 0)

    def test_no_gaps_no_ratio(self):
        self.assertEqual(accounting.Harvest(0, 0, 0, 0).ratio, 0.0)


class Waiting(unittest.TestCase):
    """How long jobs wait."""

    def test_the_first_start_counts(self):
        first = line(5, "x", "infill", "n1", 12, 20, "PREEMPTED", submit=10)
        records = accounting.parse(first + "\n" + line(5, "x", "infill", "n2", 40, 50, submit=20))
        self.assertEqual(accounting.first_wait(records, 5), 2)
        self.assertEqual([r.start for r in accounting.lives(records, 5)], [12, 40])

    def test_what_never_started_has_no_wait(self):
        records = accounting.parse(line(5, "x", "main", "None assigned", "Unknown", "Unknown", "PENDING", submit=10))
        self.assertIsNone(accounting.first_wait(records, 5))


class Recorded(unittest.TestCase):
    """A run of the demo, as reported by sacct of a real Slurm 24.11.5."""

    def setUp(self):
        self.records = accounting.parse((HERE / "sacct-24.11.txt").read_text())
        mains = [r for r in self.records if r.partition == "main"]
        self.nodes = [f"n{i}" for i in range(1, 9)]
        self.period = (min(r.submit for r in mains) - 10, max(r.end for r in mains))

    def test_it_holds_the_whole_load(self):
        mains = {r.name for r in self.records if r.partition == "main"}
        self.assertEqual(len(mains), 18)
        requeued = [r for r in self.records if r.state in ("PREEMPTED", "REQUEUED")]
        self.assertGreater(len(requeued), 10)

    def test_counting_second_by_second_gives_the_same(self):
        harvest = accounting.harvest(self.records, self.nodes, self.period)
        gap, harvested = self.second_by_second()
        self.assertGreater(gap, 700)
        self.assertEqual((harvest.gap_node_seconds, harvest.harvested_node_seconds), (gap, harvested))

    def second_by_second(self):
        """Node-seconds in long gaps, and those of them in which a job of infill had the node."""
        gap = harvested = 0
        for node in self.nodes:
            run = []
            for second in range(int(self.period[0]), int(self.period[1]) + 1):
                if second < self.period[1] and not self.has(node, "main", second):
                    run.append(second)
                    continue
                if len(run) > accounting.SHORT_GAP_SECS:
                    gap += len(run)
                    harvested += sum(self.has(node, "infill", s) for s in run)
                run = []
        return gap, harvested

    def has(self, node, partition, second):
        """Whether a job of the partition has the node in the second that begins at that time."""
        return any(
            r.partition == partition and node in r.nodes and r.start is not None and r.start <= second < r.end
            for r in self.records
        )


if __name__ == "__main__":
    unittest.main()
