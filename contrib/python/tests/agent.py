"""A small agent: starts programs as `infill run` does, signals them, and reads their reports."""

import contextlib
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import forking

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"

#: Longest time that a busy machine needs to start an interpreter with PyTorch, seconds.
LONG_SECS = 90

#: Hides this machine's GPUs. With them processes would meet by NCCL, which refuses two processes on one GPU.
NO_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


class Agent:
    """One job: its directory, its progress socket, its processes."""

    #: Variables about this machine that its processes get.
    machine = NO_GPUS

    #: The command that starts its processes.
    launch = subprocess.Popen

    def __init__(self):
        self._scratch = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self._scratch.name)
        self.generation, self.processes = 0, []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.directory / "progress"))
        self._reports = queue.SimpleQueue()
        #: The versions of the package that processes have reported, each once.
        self.packages = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        while text := self._socket.recv(4096).decode():
            report = dict(word.split("=") for word in text.split())
            if "package" in report:
                self.packages.append(report.pop("package"))
            self._reports.put(report)

    def start(self, words, world=1, **environment):
        """Starts one more generation of a command, or of a program whose text is `words`."""
        self.generation += 1
        port = free_port()
        self.processes = [
            self.popen(words, {**self.variables(world, rank, port), **environment}) for rank in range(world)
        ]

    def popen(self, words, variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
        """One process of a command."""
        if isinstance(words, str):
            words = [sys.executable, "-B", "-c", textwrap.dedent(words)]
        return self.launch(
            words,
            env={**os.environ, **self.machine, **variables},
            cwd=self.directory,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def variables(self, world, rank, port):
        """The variables that the agent sets, as if each rank had a separate node."""
        nodes = ",".join(f"n{i}" for i in range(1, world + 1))
        return {
            "PYTHONPATH": os.pathsep.join([str(SRC), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
            # Not every build of PyTorch has libuv.
            "USE_LIBUV": "0",
            "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "INFILL_GENERATION": str(self.generation), "INFILL_RESCALES": str(self.generation - 1),
            "INFILL_JOB_ID": "7", "INFILL_PLAN": "default", "INFILL_PROGRESS": str(self.directory / "progress"),
            "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train", "SLURM_JOB_NODELIST": nodes, "SLURM_NODELIST": nodes,
            "SLURM_NTASKS": str(world), "SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": str(world),
            "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank), "SLURM_LOCALID": "0",
        }  # fmt: skip

    def ask(self, number=signal.SIGUSR1):
        """Sends a signal to all ranks and their children, as the agent or Slurm does."""
        for process in self.processes:
            os.killpg(process.pid, number)

    def ended(self, secs=LONG_SECS):
        """Waits until all have ended. Returns the exit code, output and errors of each."""
        until = time.monotonic() + secs
        ended = []
        for process in self.processes:
            out, err = process.communicate(timeout=max(0.0, until - time.monotonic()))
            ended.append((process.returncode, out, err))
        return ended

    def train_at_sizes(self, program, sizes, steps_of):
        """Runs a program at one size after the other, each a number of ranks and the step at which it is to leave.

        The last one ends by itself: a signal might come when its interpreter is about to end. `steps_of` reads an
        output. Returns all steps together; no step may be done twice.
        """
        found = {}
        for world, until in sizes:
            self.start(program, world)
            self.reports_until(until)
            if (world, until) != sizes[-1]:
                self.ask()
            ended = self.ended()
            if any(code for code, _, _ in ended):
                raise AssertionError(f"a rank failed: {ended}")
            new = steps_of(ended[0][1])
            if again := found.keys() & new.keys():
                raise AssertionError(f"steps were done again: {sorted(again)}")
            self.reports()
            found.update(new)
        return found

    def reports(self):
        """The datagrams since the last call, each as a dict of texts."""
        # Datagrams that were sent before this one have been read once this one has.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(b"end=1", str(self.directory / "progress"))
        return list(iter(lambda: self._reports.get(timeout=LONG_SECS), {"end": "1"}))

    def wait_for(self, look, secs=LONG_SECS):
        """Waits until there is a datagram."""
        until = time.monotonic() + secs
        while not (found := look()):
            if time.monotonic() > until or all(p.poll() is not None for p in self.processes):
                raise AssertionError(f"waited in vain: {self.ended(5)}")
            time.sleep(0.01)
        return found

    def reports_until(self, step):
        """Waits for the report of this step, or of a later one. Returns all reports since the last call."""
        found = []
        self.wait_for(lambda: found.extend(self.reports()) or any(int(r.get("step", 0)) >= step for r in found))
        return found

    def close(self):
        """Kills processes that still run."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(b"", str(self.directory / "progress"))
        self._reader.join()
        self._socket.close()
        self._scratch.cleanup()


class TorchAgent(Agent):
    """For programs that import PyTorch."""

    launch = forking.Process


def free_port():
    """A port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
