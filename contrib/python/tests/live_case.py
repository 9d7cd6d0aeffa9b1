"""The common parts of the tests of processes that stay alive."""

import pathlib
import signal
import unittest

from live_agent import LiveAgent

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

__all__ = ["PROGRAM", "Live", "torch"]

#: After each update, each rank records the sum of its parameters, and a buffer that the first rank broadcasts.
PROGRAM = """
    import os, sys, time, torch, infill
    from infill.torch import ElasticSampler

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(os.getpid())
    time.sleep(float(os.environ.get("SLOW", 0)))
    wide = int(os.environ.get("WIDE", 8))
    ends = torch.nn.Linear(4, wide), torch.nn.Linear(wide, 1)
    net = torch.nn.Sequential(ends[0], torch.nn.BatchNorm1d(wide), torch.nn.Linear(wide, wide), ends[1])
    net.register_buffer("broadcast_updates", torch.zeros(()))
    device = os.environ.get("DEVICE", "cpu")
    net.to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    sampler = ElasticSampler(996, 12, seed=3)
    data = torch.randn(996, 4, generator=torch.Generator().manual_seed(0)).to(device)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
    every = {"checkpoint_secs": float(os.environ.get("EVERY", 600)), "warm": lambda model: model(data[:3]).mean()}
    how = {"backend": os.environ.get("BACKEND"), **every}
    run = infill.live(net, optimizer, sampler, checkpoint="live.pt", **how)
    trace = open(f"trace-{os.getpid()}", "w", buffering=1)
    while run.updates < int(os.environ.get("STEPS", 10**6)):
        for batch, part in run.parts(loader):
            if run.updates == int(os.environ.get("LEAVES_OUT", -1)):
                net[2].forward = lambda rows: rows
            with run.step(part) as step:
                if run.rank == 0:
                    net.broadcast_updates.fill_(run.updates)
                (run.model(batch).square().mean() * part.weight).backward()
                if run.updates == 5 and run.rank == int(os.environ.get("PLANTED", -1)) and run.epoch == 1:
                    time.sleep(0.5)  # The others have the gradients by now, and make their update.
                    raise RuntimeError("planted")
                optimizer.step()
                optimizer.zero_grad()
                step.loss = 0.0
                time.sleep(0.01)
            if step.done:
                whole = sum(p.sum().item() for p in net.parameters()) + net.broadcast_updates.item()
                trace.write(f"{run.updates} {run.epoch} {whole!r}\\n")
            if run.updates >= int(os.environ.get("STEPS", 10**6)):
                break
    run.close()
"""


class Live(unittest.TestCase):
    #: Whether members that wait for a failed one fail too, before the agents know.
    failures_spread = True

    def setUp(self):
        self.agent = LiveAgent()
        self.addCleanup(self.agent.close)

    def trace(self, member):
        """The recorded sums, by membership and number of the update."""
        path = self.agent.directory / f"trace-{member.process.pid}"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {(int(epoch), int(number)): total for number, epoch, total in rows}

    def assert_all_go_on_alike(self):
        """The members make steps, and their parameters are the same."""
        self.agent.regrouped()
        self.agent.wait_step(3)
        here = [{key: v for key, v in self.trace(m).items() if key[0] == self.agent.epoch} for m in self.agent.members]
        common = set.intersection(*(set(rows) for rows in here))
        self.assertTrue(common, "no step that all have made")
        for key in common:
            self.assertEqual(len({rows[key] for rows in here}), 1, f"parameters differ after (epoch, update) {key}")

    def size(self, pid):
        """Descriptors, threads and memory of a process."""
        proc = pathlib.Path(f"/proc/{pid}")
        fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        return len(list((proc / "fd").iterdir())), int(fields["Threads"]), int(fields["VmRSS"].split()[0])

    def assert_changes_leave_nothing(self, urgent_every=0):
        """Checks that a process after 25 changes is as large as after five."""
        members = self.agent.begin(PROGRAM, 2)
        sizes = []
        for number in range(25):
            self.agent.regroup(members, urgent=urgent_every > 0 and number % urgent_every == urgent_every - 1)
            self.agent.regrouped()
            self.agent.wait_step(1)
            sizes.append([self.size(member.process.pid) for member in members])
        for early, late in zip(sizes[4], sizes[-1]):
            self.assertEqual(late[:2], early[:2], f"descriptors or threads: {sizes}")
            self.assertLess(late[2], 1.05 * early[2], f"memory: {sizes}")

    def lose(self, lost, number=signal.SIGKILL, **how):
        """Removes a member that is gone, as agents do that have noticed."""
        lost.kill(number)
        self.agent.regroup([m for m in self.agent.members if m is not lost], urgent=True, **how)
