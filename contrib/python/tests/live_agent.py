"""A small agent that rescales without a restart: it talks to the processes as contrib/CONTROL.md describes."""

import contextlib
import json
import os
import signal
import socket
import threading
import time

from agent import LONG_SECS, TorchAgent


class Member:
    """One process and its messages."""

    def __init__(self, agent, process):
        self.process = process
        self.said = []
        self._agent, self._socket = agent, None

    def send(self, what, **fields):
        self.send_line(json.dumps({"type": what, **fields}).encode())

    def send_line(self, line):
        with contextlib.suppress(OSError):
            self._socket.sendall(line + b"\n")

    def take(self, conversation):
        """Whether the process has said hello."""
        self._socket = conversation

    def hang_up(self):
        self._socket.shutdown(socket.SHUT_RDWR)

    def heard(self, what, **fields):
        """The last message of this kind; None if there is none."""
        for message in reversed(self.said):
            if message["type"] == what and fields.items() <= message.items():
                return message
        return None

    def hear(self, what, secs=LONG_SECS, **fields):
        """Waits for a message."""
        with self._agent.changed:
            self._agent.changed.wait_for(
                lambda: self.heard(what, **fields) or (self.process.poll() is not None and self.heard("closed")), secs
            )
            message = self.heard(what, **fields)
        if message is None:
            self._agent.fail(f"no {what} {fields} of process {self.process.pid}")
        return message

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)


class LiveAgent(TorchAgent):
    """One job whose processes join and leave."""

    def __init__(self):
        super().__init__()
        self.changed = threading.Condition()
        self.members, self.epoch, self.everybody = [], 0, []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.directory / "control"))
        self._listener.listen()
        self.welcomes, self.step = True, 0
        #: The agents' protocol version, and the secret that they hand out. None: agents from before secrets existed.
        self.version, self.secret = 2, os.urandom(32).hex()
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, text):
        """Raises AssertionError with all messages and the stacks of all threads."""
        for member in self.everybody:
            if member.process.poll() is None:
                member.kill(signal.SIGABRT)
        time.sleep(0.5)
        last = [" ".join(f"{k}={v}" for k, v in said.items()) for m in self.everybody for said in m.said[-4:]]
        codes = [f"{m.process.pid} ended with {m.process.poll()}" for m in self.everybody]
        ends = [f"epoch {self.epoch}", *last, *codes]
        errors = [path.read_text()[-3000:] for path in sorted(self.directory.glob("errors-*"))]
        raise AssertionError("\n".join([text, *ends, *filter(None, errors)]))

    def _accept(self):
        while True:
            try:
                conversation, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(conversation,), daemon=True).start()

    def _converse(self, conversation):
        member = None
        with conversation, contextlib.suppress(OSError), conversation.makefile("rb") as lines:
            for line in lines:
                message = {**json.loads(line), "at": round(time.monotonic(), 3)}
                if message["type"] == "hello":
                    member = self._greet(message, conversation)
                with self.changed:
                    member.said.append(message)
                    self.changed.notify_all()
        if member:
            with self.changed:
                member.said.append({"type": "closed"})
                self.changed.notify_all()

    def _greet(self, hello, conversation):
        with self.changed:
            self.changed.wait_for(lambda: any(m.process.pid == hello["pid"] for m in self.everybody), LONG_SECS)
            (member,) = [m for m in self.everybody if m.process.pid == hello["pid"]]
        member.take(conversation)
        member.said.append({"type": "pid", "pid": hello["pid"]})
        if self.welcomes:
            member.send("welcome", version=min(hello["version"], self.version))
        return member

    def spawn(self, words, count=1, **environment):
        """Starts processes that may become members."""
        self.generation = 1
        new = []
        for _ in range(count):
            ours = {"INFILL_CONTROL": str(self.directory / "control"), "PYTHONFAULTHANDLER": "1"}
            variables = {**self.variables(1, 0, 1), **ours, **environment}
            errors = open(self.directory / f"errors-{len(self.everybody)}", "w")
            process = self.popen(words, variables, stdout=errors, stderr=errors)
            errors.close()
            self.processes.append(process)
            with self.changed:
                self.everybody.append(Member(self, process))
                self.changed.notify_all()
            new.append(self.everybody[-1])
        return new

    def regroup(self, members, urgent=False, host=None, store=None):
        """Sends a new membership to all processes concerned. The store is at `host`, else at the first member."""
        old, self.members = self.members, members
        self.epoch += 1
        if store is None:
            host = host or members[0]
            host.send("host", epoch=self.epoch)
            store = f"127.0.0.1:{host.hear('store', epoch=self.epoch)['port']}"
        for rank, member in enumerate(members):
            place = {"epoch": self.epoch, "rank": rank, "world": len(members), "store": store, "urgent": urgent}
            member.send("regroup", **place, **({"secret": self.secret} if self.secret else {}))
        for member in old:
            if member not in members:
                member.send("leave", epoch=self.epoch, urgent=urgent)

    def regrouped(self, secs=LONG_SECS):
        """Waits until the newest membership is up. Returns each member's message about it."""
        with self.changed:
            self.changed.wait_for(self._all_regrouped_or_not, secs)
        return [member.hear("regrouped", 0.0, epoch=self.epoch) for member in self.members]

    def _all_regrouped_or_not(self):
        up = all(member.heard("regrouped", epoch=self.epoch) for member in self.members)
        return up or any(member.process.poll() is not None or self._hangs(member) for member in self.members)

    def _hangs(self, member):
        last = member.heard("hopeless")
        return last is not None and last["epoch"] < self.epoch and not member.heard("regrouped", epoch=self.epoch)

    def begin(self, words, count, **environment):
        """Starts a job."""
        members = self.spawn(words, count, **environment)
        for member in members:
            member.hear("ready")
        self.regroup(members)
        self.regrouped()
        return members

    def wait_step(self, more=1):
        """Waits until this many more steps have been made."""
        self.step = max([self.step, *(int(r["step"]) for r in self.reports() if "step" in r)])
        wanted, end = self.step + more, time.monotonic() + LONG_SECS
        while self.step < wanted:
            self.step = max([self.step, *(int(r["step"]) for r in self.reports() if "step" in r)])
            if time.monotonic() > end:
                self.fail(f"no step {wanted}")
            time.sleep(0.01)

    def end(self, secs=LONG_SECS):
        """Waits until the members have trained to the end."""
        end = time.monotonic() + secs
        for member in self.members:
            try:
                code = member.process.wait(max(0.0, end - time.monotonic()))
            except Exception:
                self.fail(f"process {member.process.pid} does not end")
            if code != 0:
                self.fail(f"process {member.process.pid} ended with {code}")

    def close(self):
        self._listener.close()
        super().close()
