#!/usr/bin/env python3
"""Draws the diagrams of the documents: diagrams.py [DIR]"""

from __future__ import annotations

import pathlib
import sys

from svg import Picture


def loop() -> Picture:
    """What happens in each round."""
    p = Picture("loop", 900, 330, "The loop: snapshot, gaps, plan, check, act. The training reports its speed back.")
    p.box(20, 110, 130, 76, "Slurm", ("nodes, jobs,", "planned starts"), "main")
    p.box(205, 110, 130, 76, "Find gaps", ("which nodes are", "idle, till when"), "ours")
    p.box(390, 110, 130, 76, "Plan", ("which job gets", "which nodes"), "ours")
    p.box(575, 110, 130, 76, "Check", ("by code", "of its own"), "ours")
    p.box(760, 110, 120, 76, "Act", ("pin, release,", "shrink, cancel"), "ours")
    for x in (150, 335, 520, 705):
        p.arrow((x, 148), (x + 55, 148))
    p.arrow(
        (820, 110),
        (820, 50),
        (85, 50),
        (85, 110),
        words="as an Operator, on jobs of the partition infill only",
        at=(452, 42),
    )
    p.box(
        575,
        238,
        305,
        72,
        "Training on the nodes",
        ("infill's agent starts it, asks it to save,", "and starts it again at another size"),
        "warm",
    )
    p.arrow((820, 186), (820, 238), words="orders", at=(848, 216))
    p.arrow((575, 274), (455, 274), (455, 186), words="samples a second, cost of changes", at=(345, 279))
    return p


def protocols() -> Picture:
    """Who connects to whom."""
    p = Picture(
        "protocols",
        920,
        470,
        "Who connects to whom: commands, browsers and agents reach the daemon's port; the daemon reaches slurmrestd and its store.",
    )
    p.frame(340, 30, 250, 410, "daemon's host")
    p.box(370, 150, 190, 84, "infill serve", ("user infill", "listens at 6810/tcp"), "ours")
    p.box(370, 300, 190, 56, "slurmrestd", ("of its own, user infill",), "plain")
    p.box(370, 376, 190, 48, "SQLite file", (), "plain")
    p.arrow((430, 234), (430, 300), words="Unix socket", at=(478, 272))
    p.arrow((390, 234), (390, 262), (352, 262), (352, 400), (370, 400))
    p.frame(640, 30, 260, 230, "controller")
    p.box(670, 66, 200, 70, "slurmctld", ("6817/tcp, as always",), "main")
    p.box(670, 160, 200, 70, "slurmdbd", ("accounting, as always",), "main")
    p.arrow((560, 166), (626, 166), (626, 82), (670, 82), words="scontrol", at=(592, 158))
    p.arrow((560, 328), (614, 328), (614, 272), (656, 272), (656, 116), (670, 116), words="MUNGE", at=(585, 320))
    p.frame(20, 30, 270, 196, "login node, desktop")
    p.box(45, 66, 220, 56, "infill status, explain …", ("proves its user by MUNGE",), "plain")
    p.box(45, 146, 220, 56, "browser", ("a link that opens once",), "plain")
    p.arrow((265, 94), (306, 94), (306, 168), (370, 168))
    p.arrow((265, 184), (370, 184), words="HTTP(S)", at=(318, 202))
    p.frame(20, 258, 270, 182, "each compute node")
    p.box(45, 292, 220, 56, "infill run, infill worker", ("the agent, as the job's user",), "warm")
    p.box(45, 366, 220, 56, "training command", ("Unix socket to its agent",), "warm")
    p.arrow((265, 320), (306, 320), (306, 214), (370, 214), words="sealed polls, HTTP(S)", at=(202, 250))
    p.arrow((155, 348), (155, 366), both=True)
    p.frame(640, 290, 260, 150, "if you like")
    p.text(656, 338, "Prometheus reads /metrics", "ink small")
    p.text(656, 364, "your web server asks a Unix socket", "ink small")
    p.text(656, 390, "PostgreSQL instead of SQLite,", "ink small")
    p.text(656, 408, "with a second daemon", "ink small")
    return p


def job_life() -> Picture:
    """One job from its submission to its end."""
    p = Picture(
        "job-life",
        920,
        360,
        "One job's life: it waits, starts on one node, grows to three, shrinks for a main job, is parked, and goes on to its end.",
    )
    left, rows, step = 90, ("n1", "n2", "n3"), 46
    for i, name in enumerate(rows):
        y = 90 + i * step
        p.text(left - 14, y + 22, name, "ink bold", "end")
        p.bar(left, y, 800, 34, "idle")
    marks = ((100, "starts"), (190, "grows"), (395, "shrinks"), (505, "is parked"), (655, "goes on"), (790, "ends"))
    for x, words in marks:
        p.mark(left + x, 72, 240, words)
    p.bar(left, 90, 90, 34, "main", "main job")
    p.bar(left + 100, 90, 400, 34, "ours", "lead")
    p.bar(left + 190, 90 + step, 200, 34, "ours", "wing")
    p.bar(left + 190, 90 + 2 * step, 310, 34, "ours", "wing")
    p.bar(left + 400, 90 + step, 250, 34, "main", "main job")
    p.bar(left + 510, 90, 140, 34, "main", "main job")
    p.bar(left + 510, 90 + 2 * step, 140, 34, "main", "main job")
    p.bar(left + 660, 90, 130, 34, "ours", "lead")
    p.bar(left + 660, 90 + step, 130, 34, "ours", "wing")
    p.text(left - 14, 276, "nodes", "soft small", "end")
    for x, w, words in (
        (0, 100, "0, held"),
        (100, 90, "1"),
        (190, 205, "3"),
        (395, 110, "2"),
        (505, 150, "0, held"),
        (655, 135, "2"),
    ):
        p.text(left + x + w / 2, 276, words, "ink", "middle")
    p.text(left - 14, 302, "gen.", "soft small", "end")
    for x, w, words in ((100, 90, "1"), (190, 205, "2"), (395, 110, "3"), (655, 135, "4")):
        p.text(left + x + w / 2, 302, words, "ink", "middle")
    p.text(
        left,
        336,
        "At each mark the command saves, exits with code 0, and starts again with new ranks. No step is lost or made twice.",
        "soft small",
    )
    return p


def main_job() -> Picture:
    """What happens when a main job comes."""
    p = Picture(
        "main-job",
        920,
        380,
        "A planned start finds its nodes free; an unplanned one waits at most for the time to save.",
    )
    p.text(20, 34, "Planned by backfill: infill leaves before", "ink bold")
    p.bar(140, 58, 420, 34, "ours", "training on n1 and n2")
    p.bar(560, 58, 110, 34, "warm", "saves, leaves")
    p.bar(670, 58, 70, 34, "idle", "idle")
    p.bar(740, 58, 160, 34, "main", "main job starts")
    p.text(20, 80, "n2", "ink")
    p.mark(740, 116, 150, "")
    p.text(740, 110, "planned start", "ink small", "middle")
    p.arrow((560, 136), (738, 136), both=True)
    p.text(550, 141, "time to leave: saving, epilog, a margin", "soft small", "end")
    p.text(20, 200, "Not planned: Slurm preempts, as for any preemptible job", "ink bold")
    p.text(20, 246, "n2", "ink")
    p.bar(140, 224, 300, 34, "ours", "training on n1 and n2")
    p.bar(440, 224, 130, 34, "warm", "2 s to save")
    p.bar(570, 224, 90, 34, "plain", "clean up")
    p.bar(660, 224, 240, 34, "main", "main job starts")
    p.text(20, 290, "n1", "ink")
    p.bar(140, 268, 300, 34, "ours", "")
    p.bar(440, 268, 130, 34, "warm", "saves too")
    p.bar(570, 268, 86, 34, "plain", "starts again")
    p.bar(664, 268, 236, 34, "ours", "training on n1 alone")
    p.mark(440, 214, 320, "")
    p.text(440, 338, "a main job takes n2", "ink small", "middle")
    p.mark(660, 214, 320, "")
    p.text(660, 338, "and starts after saving and clean-up", "ink small", "middle")
    p.text(
        20,
        366,
        "preempt_leave_secs sets the two seconds. Slurm looks again at its queue when the epilog ends.",
        "soft small",
    )
    return p


def crates() -> Picture:
    """The crates and what they may do."""
    p = Picture(
        "crates",
        920,
        430,
        "The crates: a pure core that computes, edges to Slurm, database and agents, and the program around them.",
    )
    p.frame(20, 20, 880, 70, "program")
    p.box(330, 34, 120, 44, "src/", (), "plain")
    p.box(470, 34, 120, 44, "lab/cli", (), "plain")
    p.box(610, 34, 120, 44, "present", (), "plain")
    p.text(140, 62, "one file a subcommand", "soft small")
    p.frame(20, 110, 880, 90, "loops and edges: network, files, clocks")
    for i, (name, what) in enumerate(
        (
            ("daemon", "rounds, HTTP"),
            ("agent", "on the nodes"),
            ("slurm", "REST, scontrol"),
            ("store", "SQLite, PostgreSQL"),
            ("traces", "logs of others"),
        )
    ):
        p.box(40 + i * 172, 138, 152, 50, name, (what,), "warm")
    p.frame(20, 220, 880, 186, "pure core: no I/O, no async, no clock, no randomness")
    first = (
        ("planner", "plan and its check"),
        ("lifecycle", "state machine of a job"),
        ("advisor", "rates, curves, probes"),
        ("gaps", "windows, survival"),
        ("sim", "replays logs"),
    )
    for i, (name, what) in enumerate(first):
        p.box(40 + i * 172, 252, 152, 56, name, (what,), "ours")
    p.box(126, 332, 324, 56, "model", ("ids, snapshots, plans, reports, configuration",), "ours")
    p.box(470, 332, 324, 56, "api", ("messages between agents, daemon, operators",), "ours")
    p.arrow((460, 90), (460, 110))
    p.arrow((460, 200), (460, 220))
    return p


def planner() -> Picture:
    """How a plan comes about."""
    p = Picture(
        "planner",
        920,
        520,
        "How a plan comes about: options, search, proof, solver if needed, placement, check, and the last resort.",
    )
    p.box(30, 30, 250, 62, "Is the snapshot trusted?", ("unreadable records, stale plans …",), "warm")
    p.box(
        350,
        30,
        540,
        62,
        "no: nothing starts or grows",
        ("who must leave still leaves, by the last trusted snapshot",),
        "bad",
    )
    p.arrow((280, 61), (350, 61))
    p.arrow((155, 92), (155, 124), words="yes", at=(178, 112))
    p.box(
        30,
        124,
        250,
        72,
        "Options of each job",
        ("allowed sizes, execution plans,", "node types, whose turn it is"),
        "ours",
    )
    p.box(
        350, 124, 250, 72, "Gains and costs", ("rates by size, seconds of a change,", "how long each gap lasts"), "ours"
    )
    p.arrow((350, 160), (280, 160))
    p.arrow((155, 196), (155, 226))
    p.box(
        30,
        226,
        250,
        72,
        "Search without a solver",
        ("prices of nodes, exchanges,", "branch and bound for few jobs"),
        "ours",
    )
    p.arrow((280, 262), (350, 262))
    p.box(350, 226, 250, 72, "Proved within 0.1 %?", ("of the best possible plan",), "warm")
    p.arrow((600, 262), (660, 262), words="no", at=(628, 254))
    p.box(660, 226, 230, 72, "Integer program", ("if small enough; bounded work",), "ours")
    p.arrow((475, 298), (475, 330), words="yes", at=(500, 318))
    p.arrow((775, 298), (775, 366), (600, 366))
    p.box(350, 330, 250, 72, "Placement", ("named nodes: few switches, few", "moves, ranks in order"), "ours")
    p.arrow((350, 366), (280, 366))
    p.box(30, 330, 250, 72, "Does the checker agree?", ("rules of its own, code of its own",), "warm")
    p.arrow((155, 402), (155, 438), words="yes", at=(178, 426))
    p.box(30, 438, 250, 62, "Targets of all jobs", ("those that give back come first",), "ours")
    p.arrow((250, 402), (250, 420), (475, 420), (475, 438), words="no, or too late", at=(362, 414))
    p.box(350, 438, 540, 62, "Last resort", ("each job keeps what it has, less what it must leave",), "bad")
    return p


def sweep() -> Picture:
    """A sweep fills gaps of all shapes."""
    p = Picture("sweep", 920, 330, "A sweep: an array of small trials fills gaps of all shapes beside the main queue.")
    names = ("n1", "n2", "n3", "n4")
    for i, name in enumerate(names):
        y = 50 + i * 48
        p.text(60, y + 22, name, "ink bold", "end")
        p.bar(80, y, 810, 36, "idle")
    mains = ((0, 80, 240), (0, 620, 270), (1, 200, 330), (2, 80, 120), (2, 560, 200), (3, 360, 260))
    for row, x, w in mains:
        p.bar(x, 50 + row * 48, w, 36, "main", "main job")
    trials = (
        (0, 324, 140, 4),
        (0, 468, 146, 7),
        (1, 80, 116, 2),
        (1, 534, 100, 8),
        (1, 638, 120, 10),
        (1, 762, 128, 12),
        (2, 204, 130, 3),
        (2, 338, 110, 5),
        (2, 452, 104, 6),
        (2, 764, 126, 13),
        (3, 80, 140, 1),
        (3, 224, 132, 2),
        (3, 624, 130, 9),
        (3, 758, 132, 11),
    )
    for row, x, w, number in trials:
        kind = "second" if number in (5, 6, 12) else "ours"
        p.bar(x, 50 + row * 48, w, 36, kind, f"trial {number}")
    p.text(80, 34, "time →", "soft small")
    for x, kind, words in (
        (80, "ours", "a trial that runs on"),
        (330, "second", "a trial that is pruned early"),
        (620, "main", "the main queue, undisturbed"),
    ):
        p.bar(x, 262, 22, 22, kind)
        p.text(x + 32, 278, words, "ink small")
    p.text(80, 314, "Trial 2 saved and left n2 for a main job, and went on from there on n4.", "soft small")
    return p


def change() -> Picture:
    """The two ways to change a size."""
    p = Picture(
        "change",
        920,
        330,
        "Two ways to change size: all save and start again, or the processes stay alive while new ones warm up.",
    )
    p.text(20, 34, "Restart: any program that saves and goes on", "ink bold")
    for i, name in enumerate(("worker 0", "worker 1")):
        p.text(20, 76 + i * 42, name, "ink small")
    p.bar(110, 54, 270, 34, "ours", "trains on 1 node")
    p.bar(380, 54, 90, 34, "warm", "saves")
    p.bar(470, 54, 130, 34, "plain", "starts")
    p.bar(600, 54, 290, 34, "ours", "trains on 2 nodes")
    p.bar(470, 96, 130, 34, "plain", "starts")
    p.bar(600, 96, 290, 34, "ours", "")
    p.arrow((380, 146), (600, 146), both=True, words="pause: the time to save and to start", at=(490, 164))
    p.text(20, 206, "Alive: infill.torch.Elastic, or your own by the control protocol", "ink bold")
    for i, name in enumerate(("worker 0", "worker 1")):
        p.text(20, 248 + i * 42, name, "ink small")
    p.bar(110, 226, 480, 34, "ours", "trains on 1 node, while the other starts and warms up")
    p.bar(590, 226, 20, 34, "warm")
    p.bar(610, 226, 280, 34, "ours", "trains on 2 nodes")
    p.bar(380, 268, 210, 34, "plain", "starts, warms up")
    p.bar(590, 268, 20, 34, "warm")
    p.bar(610, 268, 280, 34, "ours", "")
    p.text(600, 322, "pause: a fraction of a second", "soft small", "middle")
    return p


def adoption() -> Picture:
    """From observing to acting."""
    p = Picture(
        "adoption",
        920,
        190,
        "From observing to acting: observe, install, canary nodes, all nodes. Each step can be undone.",
    )
    steps = (
        ("1. Observe", ("infill observe", "nothing is changed"), "plain"),
        ("2. Install", ("mode = observe", "plans, does nothing"), "plain"),
        ("3. Two nodes", ("mode = act", "[safety] nodes"), "warm"),
        ("4. All nodes", ("mode = act", "limits, alerts"), "ours"),
    )
    for i, (title, lines, kind) in enumerate(steps):
        p.box(20 + i * 228, 40, 196, 84, title, lines, kind)
        if i:
            p.arrow((20 + i * 228 - 32, 82), (20 + i * 228, 82))
    p.arrow(
        (802, 124),
        (802, 150),
        (346, 150),
        (346, 124),
        words="infill drain, or mode = observe: back within a round",
        at=(574, 170),
    )
    return p


DIAGRAMS = (loop, protocols, job_life, main_job, crates, planner, sweep, change, adoption)


def main() -> None:
    """Writes all diagrams."""
    default = pathlib.Path(__file__).resolve().parents[3] / "docs/images"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    for draw in DIAGRAMS:
        draw().write(folder)


if __name__ == "__main__":
    main()
