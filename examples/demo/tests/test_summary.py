"""The summary of a small made-up run."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import accounting  # noqa: E402
import summary  # noqa: E402

BOOKS = """\
1|main-01|alice|main|COMPLETED|0:0|n[1-8]|cpu=2,node=1|1010|1012|1020
2|spirals|alice|infill|PREEMPTED|0:0|n1|cpu=2,node=1|1000|1001|1011
2|spirals|alice|infill|COMPLETED|0:0|n1|cpu=2,node=1|1012|1020|1090
3|main-02|bob|main|COMPLETED|0:0|n2|cpu=2,node=1|1050|1060|1100
"""


def facts(**changes):
    """A run of two main jobs and a malleable one."""
    wait = {"id": 1, "nodes": 8, "wait_s": 2.0, "script_wait_s": 2.25}
    other = {"id": 3, "nodes": 1, "wait_s": 10.0, "script_wait_s": None}
    values = {
        "slurm": "24.11.5",
        "started": 1000.1,
        "shared": False,
        "records": accounting.parse(BOOKS),
        "waits": {"main-01": wait, "main-02": other},
        "before": {"main-01": wait | {"wait_s": 0.0, "script_wait_s": 0.25}, "main-02": other},
        "malleable": {2: "spirals"},
        "views": {2: {"rescales": 4}},
        "steps": {2: (1, 0)},
        "useful": {2: 60.0},
    }
    return summary.Facts(**(values | changes))


class Document(unittest.TestCase):
    """The document for machines."""

    def test_it_says_what_the_books_say(self):
        document = summary.document(facts())
        self.assertEqual((document["schema"], document["slurm"], document["period_s"]), (1, "24.11.5", 100))
        # n2 has 1020-1060; the others 1020-1100.
        self.assertEqual(document["gap_node_seconds"], 7 * 80 + 40)
        self.assertEqual(document["harvested_node_seconds"], 70)
        self.assertEqual(document["harvest_ratio"], round(70 / 600, 4))
        delays = [(job["id"], job["nodes"], job["start_delay_s"]) for job in document["main_jobs"]]
        self.assertEqual(delays, [(1, 8, 2.0), (3, 1, 0.0)])
        self.assertEqual(document["main_jobs"][0]["script_start_delay_s"], 2.0)
        self.assertEqual((document["main_delay_median_s"], document["main_delay_max_s"]), (1.0, 2.0))
        (job,) = document["malleable_jobs"]
        wanted = {"id": 2, "name": "spirals", "state": "COMPLETED", "exit_code": 0, "rescales": 4, "steps_lost": 1}
        # Held for 10 s and for 70 s.
        wanted |= {"held_node_seconds": 80.0 - 0.0, "useful_node_seconds": 60.0, "useful_ratio": 0.75}
        self.assertEqual({key: job[key] for key in wanted}, wanted)

    def test_a_good_run_has_no_problems_and_a_text(self):
        document = summary.document(facts())
        self.assertEqual(summary.problems(document), [])
        self.assertIn("70 node-seconds, 12%", summary.text(document))

    def test_a_report_that_tells_of_something_else_is_a_problem(self) -> None:
        document = summary.document(facts())
        held = sum(job["held_node_seconds"] for job in document["malleable_jobs"])
        for reported, words in [(held * 1.005, ""), (held * 1.02, "infill report"), (0.0, "infill report")]:
            found = "\n".join(summary.problems({**document, "reported_node_seconds": reported}))
            self.assertEqual("infill report" in found, bool(words), found)

    def test_problems_are_named(self):
        text = "\n".join(summary.problems(summary.document(facts(steps={2: (0, 3)}))))
        self.assertIn("skipped 3 steps", text)
        failed = BOOKS.replace("COMPLETED|0:0|n1", "FAILED|7:0|n1")
        text = "\n".join(summary.problems(summary.document(facts(records=accounting.parse(failed), steps={2: None}))))
        self.assertIn("ended FAILED, exit 7", text)
        self.assertIn("left no log", text)


class Line(unittest.TestCase):
    """The line every ten seconds."""

    def test_it_counts_nodes_and_names_jobs(self):
        nodes = [{"kind": kind} for kind in ("busy", "busy", "held", "gap")]
        jobs = [{"job": 2, "state": "running", "nodes": ["n3"], "step": 12}]
        said = summary.line(30, {"nodes": nodes, "jobs": jobs}, {2: "spirals", 4: "wide"})
        self.assertEqual(said, "  30 s  main 2 nodes, infill 1, idle 1   spirals running on 1 step 12   wide -")

    def test_a_silent_daemon(self):
        self.assertIn("does not answer", summary.line(30, None, {}))


if __name__ == "__main__":
    unittest.main()
