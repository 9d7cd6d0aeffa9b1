"""The thread that listens to the agent, and times what the training's thread waits for."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

from .messages import FIRST_VERSION, MAX_LINE_BYTES, VERSION, Change, Malformed, change, parse

#: How long an agent may take to answer the first message, seconds. It is on this node, but may be starting all
#: processes of the node.
WELCOME_SECS = 10.0

#: Time between two checks for hanging operations, seconds.
TICK_SECS = 0.1


class Control(threading.Thread):
    """One conversation with the agent. Knows the newest membership; `on_tick` notifies code that is in an older one."""

    def __init__(self, to: socket.socket) -> None:
        super().__init__(daemon=True, name="infill-control")
        self._socket: Optional[socket.socket] = to
        self._poll = select.poll()
        self._poll.register(to, select.POLLIN)
        self._buffer, self._too_long = b"", False
        self._heard, self._sending = threading.Condition(), threading.Lock()
        self._version: Optional[int] = None
        self._save_asked = False
        #: The newest membership, and when it arrived; the newest urgent one.
        self.newest: Optional[Change] = None
        self.newest_at, self.urgent_epoch = 0.0, 0
        #: Opens a store for an epoch and returns its port; raises RuntimeError.
        self.on_host: Callable[[int], int] = lambda epoch: 0
        #: Called on this thread, about every TICK_SECS and after every change of membership.
        self.on_tick: Callable[[], object] = lambda: None
        #: The phase of this process, for the roll.
        self.on_roll: Callable[[], Dict[str, Any]] = dict
        # A forked child, such as a DataLoader's, would keep the conversation open after this process ends.
        os.register_at_fork(after_in_child=self._forget)

    @property
    def alive(self) -> bool:
        """Whether the agent is connected."""
        return self._socket is not None

    def greet(self) -> bool:
        """Says hello and waits for a welcome. False if none comes; then no message will come later."""
        self.start()
        self.say("hello", version=VERSION, pid=os.getpid(), local_rank=int(os.environ.get("LOCAL_RANK") or 0))
        with self._heard:
            self._heard.wait_for(lambda: self._version is not None or not self.alive, WELCOME_SECS)
        if self._version is None or not FIRST_VERSION <= self._version <= VERSION:
            self._close()
        return self.alive

    def say(self, what: str, **fields: Any) -> None:
        """Sends the agent a message. Never waits, never raises: an agent that is slow to read misses some messages."""
        line = json.dumps({"type": what, **fields}).encode() + b"\n"
        with self._sending:
            if self._socket is not None:
                try:
                    self._socket.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except OSError:
                    pass

    def wait_newer(
        self, than: int, secs: Optional[float], until: Callable[[], bool] = lambda: False
    ) -> Optional[Change]:
        """Waits for a membership newer than epoch `than`.

        Returns None after `secs` (None: no limit), once `until` holds, or once the agent is gone and knows of none.
        """
        end = None if secs is None else time.monotonic() + secs
        with self._heard:
            while self.newest is None or self.newest.epoch <= than:
                if not self.alive or until() or (end is not None and time.monotonic() >= end):
                    return None
                # Signals are handled between two waits.
                self._heard.wait(TICK_SECS)
            return self.newest

    def take_save(self) -> bool:
        """Whether the agent has asked for a checkpoint since the last call."""
        with self._heard:
            asked, self._save_asked = self._save_asked, False
        return asked

    @property
    def save_asked(self) -> bool:
        """Whether `take_save` would say so."""
        return self._save_asked

    def run(self) -> None:
        """Reads messages and checks time-outs. These still count when the agent is gone."""
        while True:
            try:
                for line in self._lines():
                    self._take(line)
                self.on_tick()
            except Exception:  # No error here ends the training.
                traceback.print_exc()
                time.sleep(TICK_SECS)

    def _lines(self) -> List[bytes]:
        """The bytes that have arrived within TICK_SECS."""
        to = self._socket
        if to is None:
            time.sleep(TICK_SECS)
            return []
        if not self._poll.poll(TICK_SECS * 1000):
            return []
        try:
            data = to.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._close()
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if self._too_long and lines:
            del lines[0]
            self._too_long = False
        if len(self._buffer) > MAX_LINE_BYTES:
            self.say("error", text=f"expected no line longer than {MAX_LINE_BYTES} bytes")
            self._buffer, self._too_long = b"", True
        return [] if self._too_long else lines

    def _take(self, line: bytes) -> None:
        try:
            message = parse(line)
        except Malformed as error:
            self.say("error", text=str(error))
            return
        if message is None:
            return
        if message["type"] == "host":
            self._host(message["epoch"])
        elif message["type"] == "roll":
            self.say("here", **self.on_roll())
        elif message["type"] == "error":
            print(f"infill: the agent did not understand this process: {message['text']}", file=sys.stderr, flush=True)
        else:
            self._note(message)

    def _note(self, message: Dict[str, Any]) -> None:
        """Stores a message that the training's thread may be waiting for."""
        with self._heard:
            if message["type"] == "welcome":
                self._version = message["version"]
            elif message["type"] == "save":
                self._save_asked = True
            else:
                self._note_change(change(message))
            self._heard.notify_all()

    def _note_change(self, new: Change) -> None:
        if self.newest is None or new.epoch > self.newest.epoch:
            self.newest, self.newest_at = new, time.monotonic()
            if new.urgent:
                self.urgent_epoch = new.epoch

    def _host(self, epoch: int) -> None:
        try:
            self.say("store", epoch=epoch, port=self.on_host(epoch))
        except RuntimeError as error:
            text = f"could not host a store: {error}"[:500]
            self.say("failed", **{**self.on_roll(), "epoch": epoch, "error": text})

    def _close(self) -> None:
        with self._heard, self._sending:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._heard.notify_all()

    def _forget(self) -> None:
        # Another thread may have held a lock when the child was forked.
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect() -> Optional[Control]:
    """The conversation with the agent. None if there is no agent; then the environment holds all information."""
    path = os.environ.get("INFILL_CONTROL")
    # A launcher in between would end all its processes when one of them ends.
    if not path or "TORCHELASTIC_RUN_ID" in os.environ:
        return None
    to = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        to.connect(path)
    except OSError as error:
        to.close()
        print(f"infill: no conversation with the agent at {path}: {error}", file=sys.stderr, flush=True)
        return None
    control = Control(to)
    return control if control.greet() else None
