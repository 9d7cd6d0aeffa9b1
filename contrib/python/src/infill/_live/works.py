"""Collectives that another thread can give up, even while gloo itself waits on.

When a peer is gone, gloo fails most operations that wait for it. But an operation in the middle of a message waits
for the rest until its time-out. So does one that sends just when the peer is lost: gloo forgets data that it could
not write at once. So exchanges on processors are awaited by our own futures, which fail as soon as their works are
given up. Ending a group means waiting for its works, so groups with such works are kept until gloo has finished them.

Making a group is not a work, but also waits for peers. So does DistributedDataParallel's single exchange about its
gradients. Both run on another thread, which is abandoned if they are given up. (With `find_unused_parameters`
DistributedDataParallel exchanges something in each pass, with `static_graph` in the first one, and waits for that
itself.) The first use of a group of NCCL, where its ranks connect, also runs there: it cannot be aborted, and
aborting anything else may wait for it.

Each group has one work at a time. Of two works, one may fail while the other one hangs. While the group is kept then,
gloo would poll without a pause for data of the failed one.
"""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import torch

#: Most epochs whose groups are kept at a time, and most threads that were given up and still run.
MOST_KEPT = 16

#: Time between two looks whether they have ended, seconds.
SETTLE_PAUSE_SECS = 0.02

#: The name of such a thread.
THREAD = "infill-waits"

#: Begins a work of torch.distributed, or runs a call that has no work.
Begin = Callable[[], Any]


class Works:
    """The running and the waiting works in the groups of an epoch. Its methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        #: For each group, how each work is begun, and its future. gloo has begun the first one.
        self._queues: Dict[Any, Deque[Tuple[Begin, Any]]] = {}
        #: Works that gloo had not finished at the last check. Their group must not end on a thread of its own.
        self._begun: List[Tuple[Any, Any]] = []
        self._elsewhere: List[_Elsewhere] = []

    def follow(self, group: Any, begin: Begin) -> Any:
        """A future of the first tensor of the work that `begin` begins, once those before it in `group` have ended.

        The future fails with RuntimeError if the work fails or is given up.
        """
        return self._follow(group, begin).then(_unpack)

    def wait(self, group: Any, begin: Begin) -> None:
        """Begins a work and waits for it. Raises RuntimeError if it fails or is given up."""
        _unpack(self._follow(group, begin))

    def elsewhere(self, call: Begin) -> Any:
        """Runs `call` on another thread and returns its result.

        Raises RuntimeError if it fails or is given up, or if too many given-up calls still run.
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
        """Makes present and later waits for one of them fail at once."""
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
        """Raises RuntimeError if the works were given up."""
        if self._given_up:
            raise RuntimeError(_GIVEN_UP)

    def are_elsewhere(self) -> bool:
        """Whether a call of `elsewhere` is still running."""
        with self._lock:
            return bool(self._still_elsewhere())

    def are_under_way(self) -> bool:
        """Whether gloo or NCCL has not finished some works."""
        with self._lock:
            return bool(self._queues or self._under_way() or self._still_elsewhere())

    def let_go(self) -> None:
        """Releases groups without running works. Call it on the training's thread."""
        with self._lock:
            elsewhere, self._elsewhere = self._elsewhere, self._still_elsewhere()
            before, self._begun = self._begun, self._under_way()
        # Outside of the lock: the groups end here.
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
        """Removes the first work, which has ended. Returns how the next one is begun."""
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
    """A call on another thread, its future, and whether that thread has released the call.

    Objects of the call must not end on that thread.
    """

    call: Optional[Begin]
    ours: Any
    ended: threading.Event


class _Helper:
    """A thread that runs one call after the other. Each new thread would take further memory for NCCL."""

    def __init__(self) -> None:
        self._calls: "queue.SimpleQueue[Tuple[_Elsewhere, Callable[[Any, Any], None]]]" = queue.SimpleQueue()
        threading.Thread(target=self._run, name=THREAD, daemon=True).start()

    @classmethod
    def idle(cls) -> _Helper:
        """A helper without a call, new if there is none."""
        return _idle.pop() if _idle else cls()

    def do(self, one: _Elsewhere, settle: Callable[[Any, Any], None]) -> None:
        """Runs the call and settles its future."""
        self._calls.put((one, settle))

    def _run(self) -> None:
        is_needed = True
        while is_needed:
            is_needed = self._do_next()

    def _do_next(self) -> bool:
        """Waits for a call and runs it. False if another helper is idle already: then this thread ends."""
        one, settle = self._calls.get()
        assert one.call
        value, ours, ended = _outcome(one.call), one.ours, one.ended
        del one
        settle(ours, value)
        del settle, value, ours
        # A helper whose call was given up may come back when another one is idle already.
        is_needed = not _idle
        if is_needed:
            _idle.append(self)
        ended.set()
        return is_needed


class _Failure(str):
    """Why a work failed, as text. Keeping the exception would keep all objects that it refers to for good."""


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


#: The helpers that wait for a call, usually one.
_idle: List[_Helper] = []

#: Works that gloo or NCCL has not finished, of epochs that have ended.
_kept: List[Works] = []


def keep(works: Works) -> None:
    """Keeps groups with running `works` from ending, and ends earlier kept groups without any."""
    for each in [each for each in _kept if not each.are_under_way()]:
        _kept.remove(each)
        each.let_go()
    works.let_go()
    if works.are_under_way():
        _kept.append(works)


def settle(secs: float) -> None:
    """Waits at most `secs` until nothing that was given up still runs.

    A thread that comes back from PyTorch while the interpreter is taken apart ends the process with a crash.
    """
    end = time.monotonic() + secs
    while any(each.are_under_way() for each in _kept) and time.monotonic() < end:
        time.sleep(SETTLE_PAUSE_SECS)


def check() -> None:
    """Raises RuntimeError if too many epochs are kept for one more."""
    if len(_kept) >= MOST_KEPT:
        raise RuntimeError(f"gloo or NCCL still waits in groups of {len(_kept)} memberships that have ended")
