"""Collectives that another thread can give up, also where gloo itself waits on.

gloo fails who waits for a peer that is gone, but for one: who is in the middle of a message waits for the rest of it until
its time-out. So nobody here waits for gloo itself, but for a future, which fails as soon as its work is given up. Groups
with such works are kept until gloo has done with these, for to end a group is to wait for them.

To make a group is no work, and waits for peers as well. It is done on another thread, which is left alone if it is given up.

In each group there is one at a time. Of two, one may fail while the other one hangs: as long as the group is kept then,
gloo would look without a pause for what belongs to the one that failed.
"""

from __future__ import annotations

import collections
import ctypes
import threading
from typing import Any, Callable, Deque, Dict, List, Tuple

import torch

#: Most groups that are kept at a time, and most threads that still make some.
MOST_KEPT = 16

#: The name of such a thread.
THREAD = "infill-gloo"


class Works:
    """What is under way in the groups of an epoch, and waits for its turn. Its methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        #: By group, how each work is begun, and its future; gloo has begun the first one.
        self._queues: Dict[Any, Deque[Tuple[Callable[[], Any], Any]]] = {}
        #: The futures of what is done on other threads.
        self._elsewhere: List[Any] = []

    def follow(self, group: Any, begin: Callable[[], Any]) -> Any:
        """A future of the first tensor of the work that `begin` begins, once those before it in `group` have ended.

        It fails with RuntimeError if the work does, or is given up.
        """
        return self._follow(group, begin).then(_unpack)

    def wait(self, group: Any, begin: Callable[[], Any]) -> None:
        """Does it, and waits for it. Raises RuntimeError if it fails, or is given up."""
        _unpack(self._follow(group, begin))

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        """What `call` returns on a thread of its own.

        Raises RuntimeError if it fails or is given up, or if too many are that go on.
        """
        if sum(thread.name == THREAD for thread in threading.enumerate()) >= MOST_KEPT:
            raise RuntimeError(f"gloo still waits in {MOST_KEPT} groups that it was to make")
        ours = torch.futures.Future()
        with self._lock:
            if self._given_up:
                raise RuntimeError(_GONE)
            self._elsewhere.append(ours)
        threading.Thread(target=lambda: self._settle(ours, _outcome(call)), name=THREAD, daemon=True).start()
        return _unpack(ours)

    def give_up(self) -> None:
        """Whoever waits for one of them, or will, fails at once."""
        with self._lock:
            self._given_up = True
            waiting = [ours for queue in self._queues.values() for _, ours in queue] + self._elsewhere
            for queue in self._queues.values():
                while len(queue) > 1:
                    queue.pop()
        for ours in waiting:
            self._settle(ours, _GONE)

    def groups(self) -> List[Any]:
        """Those in which some are under way."""
        with self._lock:
            return list(self._queues)

    def _follow(self, group: Any, begin: Callable[[], Any]) -> Any:
        ours = torch.futures.Future()
        with self._lock:
            given_up = self._given_up
            if not given_up:
                queue = self._queues.setdefault(group, collections.deque())
                queue.append((begin, ours))
                is_next = len(queue) == 1
        if given_up:
            self._settle(ours, _GONE)
        elif is_next:
            self._begin(group, begin)
        return ours

    def _begin(self, group: Any, begin: Callable[[], Any]) -> None:
        try:
            work = begin()
        except RuntimeError as error:
            self._end(group, _Failure(error))
            return
        work.get_future().add_done_callback(lambda done: self._end(group, _outcome(lambda: done.value()[0])))

    def _end(self, group: Any, value: Any) -> None:
        with self._lock:
            queue = self._queues[group]
            _, ours = queue.popleft()
            following = queue[0][0] if queue else None
            if not queue:
                del self._queues[group]
        self._settle(ours, value)
        if following:
            self._begin(group, following)

    def _settle(self, ours: Any, value: Any) -> None:
        with self._lock:
            if not ours.done():
                ours.set_result(value)


class _Failure(str):
    """What a work failed of. Not the exception: with what that holds, it would be held for good."""


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return _Failure(error)


def _unpack(ours: Any) -> Any:
    value = ours.wait()
    if isinstance(value, _Failure):
        raise RuntimeError(str(value))
    return value


_GONE = _Failure("a member is lost: what was exchanged with it is given up")

#: Works that gloo has not done with, and their groups.
_kept: List[Tuple[Works, List[Any]]] = []


def keep(works: Works) -> None:
    """Keeps the groups in which some are under way from their end.

    Raises RuntimeError if too many are kept already.
    """
    release()
    groups = works.groups()
    if not groups:
        return
    if sum(len(kept) for _, kept in _kept) + len(groups) > MOST_KEPT:
        raise RuntimeError(f"gloo still waits in {MOST_KEPT} groups that have ended")
    _kept.append((works, groups))
    # An interpreter that ends must not wait for them either: it finds them in use.
    for group in groups:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def release() -> None:
    """Ends those groups that nothing is under way in any more."""
    for each in [(works, groups) for works, groups in _kept if not works.groups()]:
        _kept.remove(each)
        for group in each[1]:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
