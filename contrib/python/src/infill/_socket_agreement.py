"""Lets ranks agree on the step boundary at which they leave, without a library: rank 0 asks all of them.

Until somebody is asked to leave, nothing is sent, and no rank waits for another. Then rank 0 holds all ranks. Each says
how many boundaries it has passed, and stops at its next one. The boundary after the largest of these numbers is the
one at which all leave: no rank has passed it, and a rank that is behind goes on to it. So all have taken part in the
last step of each.
"""

from __future__ import annotations

import atexit
import selectors
import socket
import sys
import threading
import time
from typing import Callable, Dict, List, Optional, Set

from . import _links, _munge
from ._links import Link, Newcomer
from ._plan import Plan

#: How long the first boundary waits for ranks that have not come to theirs, seconds.
FIRST_SECS = 10

#: How long a rank tries to reach rank 0, seconds. Some frameworks compile for minutes in the first step.
JOIN_SECS = 600

#: Longest wait for the decision, seconds. Threads answer within milliseconds.
DECISION_SECS = 10

#: Longest wait until all ranks have saved, seconds. The agent's grace time ends it earlier.
SAVED_SECS = 1800

#: Ranks that are further apart do not train together. JAX lets a process start 32 steps before the first has ended.
MOST_APART = 64

#: Connections that may be in the middle of their greeting, and those that may fail before rank 0 takes no more.
_MOST_NEWCOMERS, _MOST_STRANGERS = 64, 1000

#: Kinds of messages. To rank 0: this rank was asked; has passed this number of boundaries; has saved.
_ASKED, _PASSED, _SAVED = b"a", b"p", b"s"
#: From rank 0: all ranks are here; stop at the next boundary; leave at this one; no agreement; all have saved.
_READY, _HOLD, _LEAVE, _ALONE, _DONE = b"r", b"h", b"l", b"x", b"d"


class Boundary:
    """Where this rank is, and where it leaves. The training's thread and the one that hears messages share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._passed = 0
        self._held = self.is_alone = self._all_here = self._all_saved = False
        self._leaves_at: Optional[int] = None

    def hold(self) -> int:
        """Stops the training at its next boundary. Returns how many it has passed."""
        with self._changed:
            self._held = True
            return self._passed

    def hear(self, kind: bytes, number: int) -> None:
        """Takes in what rank 0 says."""
        with self._changed:
            if kind == _LEAVE:
                self._leaves_at = number
            elif kind == _ALONE:
                self.is_alone = True
            self._all_here |= kind in (_READY, _ALONE)
            self._all_saved |= kind in (_DONE, _ALONE)
            self._changed.notify_all()

    def reach(self, asked: bool) -> bool:
        """Whether this rank leaves at the boundary that it has come to. Waits for the decision if one is under way."""
        with self._changed:
            if asked or self._held:
                decided = self._changed.wait_for(lambda: self._leaves_at or self.is_alone, DECISION_SECS)
                self.is_alone |= not decided
            leaves = asked if self.is_alone else self._leaves_at is not None and self._passed + 1 >= self._leaves_at
            self._passed += not leaves
            return leaves

    def wait_until_all_are_here(self) -> bool:
        """Waits a little until all ranks have come to their first boundary."""
        with self._changed:
            return self._changed.wait_for(lambda: self._all_here, FIRST_SECS)

    def wait_until_all_have_saved(self) -> None:
        """Waits until all ranks that leave here have saved."""
        with self._changed:
            self._changed.wait_for(lambda: self._all_saved, SAVED_SECS)


class SocketAgreement:
    """Tells all ranks at the same step boundary that one of them was asked to leave."""

    def __init__(self, place: Plan) -> None:
        self._boundary = Boundary()
        self._side: _Side = (Hub if place.rank == 0 else Rank)(place, self._boundary)
        self._told = False
        atexit.register(self._side.end)
        self._boundary.wait_until_all_are_here()

    def ask(self, asked: bool) -> bool:
        """Whether all ranks leave at this boundary."""
        if asked and not self._told and not self._boundary.is_alone:
            self._told = True
            self._side.say(_ASKED)
        return self._boundary.reach(asked)

    def wait(self) -> None:
        """Waits until all ranks have saved."""
        if not self._boundary.is_alone:
            self._side.say(_SAVED)
            self._boundary.wait_until_all_have_saved()


class _Side:
    """One side of the conversation, with its thread."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        threading.Thread(target=self._guarded, name="infill-agreement", daemon=True).start()

    def say(self, kind: bytes) -> None:
        """Tells rank 0."""
        raise NotImplementedError

    def end(self) -> None:
        """Tells the others that this process ends."""

    def _guarded(self) -> None:
        why = None
        try:
            self._run()
        except (OSError, _links.Stranger, _munge.MungeFailed) as error:
            why = str(error)
        self._alone(why)

    def _alone(self, why: Optional[str]) -> None:
        raise NotImplementedError


def _warn(why: str) -> None:
    text = f"infill: ranks save and leave each by itself, because they cannot agree on a step: {why}"
    print(text, file=sys.stderr, flush=True)


class Rank(_Side):
    """Any rank but 0."""

    def __init__(self, place: Plan, boundary: Boundary) -> None:
        self._place, self._boundary = place, boundary
        self._link: Optional[Link] = None
        self._sending = threading.Lock()
        self._ended = False
        super().__init__(self._converse)

    def say(self, kind: bytes, number: int = 0) -> None:
        with self._sending:
            try:
                if self._link is None:
                    raise OSError("not connected")
                self._link.send(kind, number)
            except OSError:
                self._boundary.hear(_ALONE, 0)

    def end(self) -> None:
        self._ended = True
        if self._link:
            self._link.close()

    def _converse(self) -> None:
        link = self._join()
        with self._sending:
            self._link = link
        while (message := link.receive()) is not None:
            if message[0] == _HOLD:
                self.say(_PASSED, self._boundary.hold())
            else:
                self._boundary.hear(*message)

    def _join(self) -> Link:
        # Without MUNGE it is no use to wait for rank 0.
        _munge.seal(b"infill")
        until, pause = time.monotonic() + JOIN_SECS, 0.02
        while True:
            try:
                return _links.join(self._place)
            except (OSError, _links.Stranger) as error:
                if time.monotonic() > until:
                    raise OSError(f"cannot reach rank 0: {error}") from None
            time.sleep(pause)
            pause = min(1.0, 1.5 * pause)

    def _alone(self, why: Optional[str]) -> None:
        if why and not self._ended:
            _warn(why)
        self._boundary.hear(_ALONE, 0)


class Hub(_Side):
    """Rank 0. Its thread alone touches the links."""

    def __init__(self, place: Plan, boundary: Boundary) -> None:
        self._place, self._boundary = place, boundary
        self._selector = selectors.DefaultSelector()
        self._links: Dict[int, Link] = {}
        self._known: Set[int] = {0}
        self._strangers, self._ended = 0, False
        #: Boundaries that ranks have passed, once they are held; ranks that have saved.
        self._passed: Dict[int, int] = {}
        self._saved: Set[int] = set()
        self._is_holding = self._is_decided = False
        # What this rank itself says wakes the thread.
        self._own, self._wake = socket.socketpair()
        self._own.setblocking(False)
        super().__init__(self._serve)

    def say(self, kind: bytes) -> None:
        try:
            self._wake.send(kind)
        except OSError:
            self._boundary.hear(_ALONE, 0)

    def end(self) -> None:
        self._ended = True
        for link in list(self._links.values()):
            link.close()

    def _serve(self) -> None:
        # Without MUNGE no other rank can join.
        _munge.opened(_munge.seal(b"infill"))
        listener = _links.listen(self._place)
        try:
            self._selector.register(listener, selectors.EVENT_READ, "listener")
            self._selector.register(self._own, selectors.EVENT_READ, "own")
            while not self._ended:
                for key, _ in self._selector.select(_links.GREETING_SECS):
                    self._take(key)
                self._forget_slow_newcomers()
                self._decide()
                if self._is_full() and listener.fileno() >= 0:
                    self._selector.unregister(listener)
                    listener.close()
        finally:
            listener.close()

    def _is_full(self) -> bool:
        return len(self._known) == self._place.world_size or self._strangers > _MOST_STRANGERS

    def _take(self, key: selectors.SelectorKey) -> None:
        if key.data == "listener":
            self._accept(key.fileobj)  # type: ignore[arg-type]
        elif key.data == "own":
            for number in self._own.recv(100):
                self._hear(0, bytes([number]), 0)
        elif isinstance(key.data, Newcomer):
            self._greet(key.data)
        else:
            self._read(key.fileobj, *key.data)  # type: ignore[arg-type]

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if len(self._newcomers()) >= _MOST_NEWCOMERS:
            connection.close()
            return
        self._selector.register(connection, selectors.EVENT_READ, Newcomer(connection, self._place))

    def _newcomers(self) -> List[Newcomer]:
        return [key.data for key in self._selector.get_map().values() if isinstance(key.data, Newcomer)]

    def _greet(self, newcomer: Newcomer) -> None:
        try:
            found = newcomer.read()
        except BlockingIOError:
            return
        except (OSError, _links.Stranger):
            return self._turn_away(newcomer)
        if found is None:
            return None
        rank, link = found
        if rank in self._known:
            return self._turn_away(newcomer)
        self._known.add(rank)
        self._links[rank] = link
        self._selector.modify(newcomer.socket, selectors.EVENT_READ, (rank, bytearray()))
        if len(self._known) == self._place.world_size:
            self._tell(_READY)
        return None

    def _turn_away(self, newcomer: Newcomer) -> None:
        self._strangers += 1
        self._selector.unregister(newcomer.socket)
        newcomer.socket.close()

    def _forget_slow_newcomers(self) -> None:
        for newcomer in self._newcomers():
            if time.monotonic() > newcomer.until:
                self._turn_away(newcomer)

    def _read(self, connection: socket.socket, rank: int, buffer: bytearray) -> None:
        try:
            arrived = connection.recv(_links.FRAME_BYTES - len(buffer))
            buffer += arrived
            if len(buffer) == _links.FRAME_BYTES:
                message = self._links[rank].heard(bytes(buffer))
                buffer.clear()
                self._hear(rank, *message)
        except BlockingIOError:
            return
        except (OSError, _links.Stranger):
            arrived = b""
        if not arrived:
            self._lose(rank)

    def _lose(self, rank: int) -> None:
        """A rank that has ended, or died, agrees with everything."""
        link = self._links.pop(rank, None)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, tuple) and key.data[0] == rank:
                self._selector.unregister(key.fileobj)
        if link:
            link.close()

    def _hear(self, rank: int, kind: bytes, number: int) -> None:
        if kind == _PASSED:
            self._passed[rank] = number
        elif kind == _SAVED:
            self._saved.add(rank)
        elif kind == _ASKED and not self._is_holding:
            self._is_holding = True
            missing = self._place.world_size - len(self._known)
            if missing:
                self._disagree(f"{missing} of them have not come to the end of their first step")
            else:
                self._passed[0] = self._boundary.hold()
                self._send(_HOLD)

    def _decide(self) -> None:
        if self._is_holding and not self._is_decided and self._passed.keys() >= self._links.keys():
            numbers = [self._passed[rank] for rank in (0, *self._links)]
            apart = max(numbers) - min(numbers)
            if apart > MOST_APART:
                self._disagree(f"they are {apart} steps apart")
            else:
                self._is_decided = True
                self._tell(_LEAVE, max(numbers) + 1)
        if self._is_decided and self._saved >= {0, *self._links}:
            self._saved.clear()
            self._tell(_DONE)

    def _disagree(self, why: str) -> None:
        self._is_decided = True
        _warn(why)
        self._tell(_ALONE)

    def _tell(self, kind: bytes, number: int = 0) -> None:
        """Tells all ranks, this one last: it may end the process."""
        self._send(kind, number)
        self._boundary.hear(kind, number)

    def _send(self, kind: bytes, number: int = 0) -> None:
        for rank, link in list(self._links.items()):
            try:
                link.send(kind, number)
            except OSError:
                self._lose(rank)

    def _alone(self, why: Optional[str]) -> None:
        if why and not self._ended:
            _warn(why)
        for rank in list(self._links):
            self._lose(rank)
        self._boundary.hear(_ALONE, 0)
