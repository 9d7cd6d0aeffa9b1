"""Collectives that another thread can give up, also where gloo itself waits on.

gloo fails who waits for a peer that is gone, but for one: who is in the middle of a message waits for the rest of it
until its time-out. So does who sends just when a peer is lost: what gloo could not write at once is forgotten then. So what
is exchanged on processors is waited for by futures of our own, which fail as soon as their works are given up. Groups with
such works are kept until gloo has done with these, for to end a group is to wait for them.

To make a group is no work, and waits for peers as well; nor is what DistributedDataParallel tells its peers once of its
gradients. That is done on another thread, which is left alone if it is given up. (With `find_unused_parameters`, it tells
them something in each pass, with `static_graph` in the first one, and waits for that itself.) The first use of a group of
NCCL, where its ranks connect, is done there, too: it cannot be aborted, and to abort anything else may wait for it.

In each group there is one at a time. Of two, one may fail while the other one hangs: as long as the group is kept then,
gloo would look without a pause for what belongs to the one that failed.
"""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import torch

#: Most epochs of which groups are kept at a time, and most threads that were given up and go on.
MOST_KEPT = 16

#: The name of such a thread.
THREAD = "infill-waits"

#: Begins a work of torch.distributed, or does what there is none for.
Begin = Callable[[], Any]


class Works:
    """What is under way in the groups of an epoch, and waits for its turn. Its methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        #: By group, how each work is begun, and its future; gloo has begun the first one.
        self._queues: Dict[Any, Deque[Tuple[Begin, Any]]] = {}
        #: What gloo has not done with when somebody looked last. Its group must not end on a thread of its own.
        self._begun: List[Tuple[Any, Any]] = []
        self._elsewhere: List[_Elsewhere] = []

    def follow(self, group: Any, begin: Begin) -> Any:
        """A future of the first tensor of the work that `begin` begins, once those before it in `group` have ended.

        It fails with RuntimeError if the work does, or is given up.
        """
        return self._follow(group, begin).then(_unpack)

    def wait(self, group: Any, begin: Begin) -> None:
        """Does it, and waits for it. Raises RuntimeError if it fails, or is given up."""
        _unpack(self._follow(group, begin))

    def elsewhere(self, call: Begin) -> Any:
        """What `call` returns on another thread.

        Raises RuntimeError if it fails or is given up, or if too many are that go on.
        """
        busy = sum(thread.name == THREAD for thread in threading.enumerate()) - len(_idle)
        if busy >= MOST_KEPT:
            raise RuntimeError(f"{MOST_KEPT} calls that were given up still go on")
        one = _Elsewhere(call, torch.futures.Future(), threading.Event())
        with self._lock:
            self.check()
            _Helper.idle().do(one, self._settle)
            self._elsewhere.append(one)
        one.ours.wait()
        if not self._given_up:
            one.ended.wait()
            one.call = None
        return _unpack(one.ours)

    def give_up(self) -> None:
        """Whoever waits for one of them, or will, fails at once."""
        with self._lock:
            self._given_up = True
            waiting = [ours for queue in self._queues.values() for _, ours in queue]
            waiting += [one.ours for one in self._elsewhere]
            for queue in self._queues.values():
                while len(queue) > 1:
                    queue.pop()
        for ours in waiting:
            self._settle(ours, _GIVEN_UP)

    def check(self) -> None:
        """Raises RuntimeError if they were given up."""
        if self._given_up:
            raise RuntimeError(_GIVEN_UP)

    def are_elsewhere(self) -> bool:
        """Whether a call of `elsewhere` has not ended."""
        with self._lock:
            return bool(self._still_elsewhere())

    def are_under_way(self) -> bool:
        """Whether gloo or NCCL has not done with some."""
        with self._lock:
            return bool(self._queues or self._under_way() or self._still_elsewhere())

    def let_go(self) -> None:
        """Lets go of groups that nothing is under way in, for the training's thread."""
        with self._lock:
            elsewhere, self._elsewhere = self._elsewhere, self._still_elsewhere()
            before, self._begun = self._begun, self._under_way()
        # Outside the lock: they end here.
        del elsewhere, before

    def _under_way(self) -> List[Tuple[Any, Any]]:
        return [each for each in self._begun if not each[0].is_completed()]

    def _still_elsewhere(self) -> List[_Elsewhere]:
        return [one for one in self._elsewhere if not one.ended.is_set()]

    def _follow(self, group: Any, begin: Begin) -> Any:
        ours = torch.futures.Future()
        with self._lock:
            given_up = self._given_up
            if not given_up:
                queue = self._queues.setdefault(group, collections.deque())
                queue.append((begin, ours))
                is_next = len(queue) == 1
                self._begun = self._under_way()
        if given_up:
            self._settle(ours, _GIVEN_UP)
        elif is_next:
            self._begin(group, begin)
        return ours

    def _begin(self, group: Any, begin: Optional[Begin]) -> None:
        while begin:
            try:
                work = begin()
                future = work.get_future()
            except Exception as error:
                begin = self._end(group, _Failure(error))
                continue
            with self._lock:
                self._begun.append((work, group))
            future.add_done_callback(lambda done: self._go_on(group, done))
            return

    def _go_on(self, group: Any, done: Any) -> None:
        self._begin(group, self._end(group, _outcome(lambda: done.value()[0])))

    def _end(self, group: Any, value: Any) -> Optional[Begin]:
        """The first one has ended; how the next one is begun."""
        with self._lock:
            queue = self._queues[group]
            _, ours = queue.popleft()
            following = queue[0][0] if queue else None
            if not queue:
                del self._queues[group]
        self._settle(ours, value)
        return following

    def _settle(self, ours: Any, value: Any) -> None:
        with self._lock:
            if not ours.done():
                ours.set_result(value)


@dataclasses.dataclass
class _Elsewhere:
    """What is done on another thread, its future, and whether that thread holds nothing of it any more.

    What the call holds must not end there.
    """

    call: Optional[Begin]
    ours: Any
    ended: threading.Event


class _Helper:
    """A thread that does one call after the other: each new one would take memory of its own for what NCCL allocates."""

    def __init__(self) -> None:
        self._calls: "queue.SimpleQueue[Tuple[_Elsewhere, Callable[[Any, Any], None]]]" = queue.SimpleQueue()
        threading.Thread(target=self._run, name=THREAD, daemon=True).start()

    @classmethod
    def idle(cls) -> _Helper:
        """One that has nothing to do."""
        return _idle.pop() if _idle else cls()

    def do(self, one: _Elsewhere, settle: Callable[[Any, Any], None]) -> None:
        """Does it, and settles its future."""
        self._calls.put((one, settle))

    def _run(self) -> None:
        is_needed = True
        while is_needed:
            is_needed = self._do_next()

    def _do_next(self) -> bool:
        """Whether there may be one more to do."""
        one, settle = self._calls.get()
        assert one.call
        value, ours, ended = _outcome(one.call), one.ours, one.ended
        del one
        settle(ours, value)
        del settle, value, ours
        # Who was given up comes back when there is another one.
        is_needed = not _idle
        if is_needed:
            _idle.append(self)
        ended.set()
        return is_needed


class _Failure(str):
    """What a work failed of. Not the exception: with what that holds, it would be held for good."""


_GIVEN_UP = _Failure("given up: the membership changes")


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


#: The helpers that wait for a call: mostly one.
_idle: List[_Helper] = []

#: Those that gloo or NCCL has not done with, of epochs that have ended.
_kept: List[Works] = []


def keep(works: Works) -> None:
    """Keeps the groups in which some of `works` are under way from their end, and ends those that were kept so long."""
    for each in [each for each in _kept if not each.are_under_way()]:
        _kept.remove(each)
        each.let_go()
    works.let_go()
    if works.are_under_way():
        _kept.append(works)


def check() -> None:
    """Raises RuntimeError if too many are kept for one more epoch."""
    if len(_kept) >= MOST_KEPT:
        raise RuntimeError(f"gloo or NCCL still waits in groups of {len(_kept)} memberships that have ended")
