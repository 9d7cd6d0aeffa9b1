"""Leaves for a rescale: a signal sets a flag, the ranks agree on a step, save the checkpoint, and exit."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from typing import Callable, NoReturn, Optional, SupportsFloat, TypeVar, Union

from . import _children, _plan
from ._agreement import Agreement, distributed
from ._progress import report, report_saved
from ._socket_agreement import SocketAgreement

_Save = TypeVar("_Save", bound=Callable[[], object])


class Rescale:
    """The state of leaving in this process."""

    def __init__(self) -> None:
        self.save: Optional[Callable[[], object]] = None
        self._agreement: Union[Agreement, SocketAgreement, None] = None
        self._begun = False
        self._asked = False
        self._agreed_at: Optional[float] = None
        self._left = False
        self._error: Optional[BaseException] = None
        #: Whether an agent says when this process leaves. Then a SIGTERM, which may be meant for this process alone,
        #: does not ask it to.
        self.is_led: Callable[[], bool] = lambda: False
        atexit.register(self._end)

    def begin(self) -> bool:
        """Makes the ranks able to agree, then listens for signals; False if they could before. Call it on all ranks.

        Before this call a signal ends the process at once. That is right: nothing is lost, and a rank that waits in
        vain for others to come up could not look at a flag.
        """
        if self._begun or not _plan.active():
            return False
        self._begun = True
        if distributed():
            self._agreement = Agreement()
        elif _plan.plan().world_size > 1 and _plan.in_step():
            self._agreement = SocketAgreement(_plan.plan())
        self.listen()
        return True

    def listen(self) -> None:
        """Takes the signals, also back from a framework."""
        if self._begun:
            for number in (_plan.rescale_signal(), signal.SIGTERM):
                signal.signal(number, self._hear)

    def _hear(self, number: int, *_: object) -> None:
        _children.parent_was_asked()
        if number != signal.SIGTERM or not self.is_led():
            self._asked = True

    @property
    def asked(self) -> bool:
        """Whether this process was asked to save and leave."""
        return self._asked

    def use(self, agreement: Agreement) -> None:
        """Lets the ranks of a live run agree in its own way; listens for signals from the first call on."""
        self._agreement = agreement
        if not self._begun and _plan.active():
            self._begun = True
            self.listen()

    def agree(self) -> None:
        """Notes that all ranks leave at this step boundary."""
        self._agreed_at = time.monotonic()

    def agreed(self) -> bool:
        """Whether all ranks leave at this step boundary."""
        if self._agreed_at is None and self._anybody_asked():
            self._agreed_at = time.monotonic()
        return self._agreed_at is not None

    def _anybody_asked(self) -> bool:
        if self.begin():
            return False  # Steps are counted from here.
        return self._agreement.ask(self._asked) if self._agreement else self._asked

    def leave(self) -> None:
        """Waits for all ranks, reports how long saving took, and exits; does nothing if they have not agreed to."""
        if self._agreed_at is None:
            return
        try:
            if self._agreement:
                self._agreement.wait()
        finally:
            # An agent without a daemon takes an exit without this report for the end of the training.
            report_saved(time.monotonic() - self._agreed_at)
        self.depart()

    def depart(self) -> NoReturn:
        """Exits with code 0, independently of the other ranks."""
        _children.parent_has_saved()
        self._left = True
        sys.exit(0)

    def fail_with(self, error: BaseException) -> None:
        """Notes the error with which this process ends, if the program does not handle it."""
        self._error = error

    def _end(self) -> None:
        """Ends the process after the exit handlers that were registered later, which are called earlier.

        Taking the interpreter apart, with PyTorch in it, takes half a second that the next generation would wait for.
        If threads of this process still wait in a group that was given up, it ends in a crash besides.
        """
        if self._left or self._is_failing():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0 if self._left else 1)

    def _is_failing(self) -> bool:
        # The interpreter keeps the error that it has printed.
        printed = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        while printed is not None and printed is not self._error:
            printed = printed.__cause__ or printed.__context__
        return printed is not None


RESCALE = Rescale()


def on_rescale(save: _Save) -> _Save:
    """Registers the function with which `step` saves the checkpoint; may be used as a decorator.

    It is called without arguments, on all ranks, between two steps. When it returns, the checkpoint must be complete
    on disk. An exception from it ends the process, which counts as a rescale that lost the steps since the last
    checkpoint.
    """
    RESCALE.save = save
    return save


def should_checkpoint() -> bool:
    """Whether to save and exit now. Call it on all ranks at each step boundary: all get the same answer.

    It becomes true about 0.1 s or one step after the signal, whichever is longer, and stays true. Save then, and call
    `leave`. The first call is never true: it makes the ranks able to agree, if torch.distributed is initialized by
    then.

    Raises ValueError when it is first called in another than the main thread, which cannot listen for signals.
    """
    return RESCALE.agreed()


def leave() -> None:
    """Waits until all ranks have saved, then exits the process with code 0. Call it on all ranks after saving.

    Tells the agent the seconds since `should_checkpoint` became true. Does nothing if it did not.

    Raises SystemExit, so that blocks are left properly. Exit handlers registered after the import of infill are called.
    """
    RESCALE.leave()


def step(
    samples: SupportsFloat,
    step: Optional[int] = None,
    loss: Optional[SupportsFloat] = None,
    total: Optional[SupportsFloat] = None,
    weight: Optional[SupportsFloat] = None,
) -> None:
    """Ends a step, on all ranks: reports progress as `report` does; on a rescale saves and exits.

    Raises RuntimeError if nothing was registered with `on_rescale`; SystemExit on a rescale. Outside infill it does
    nothing.
    """
    if not _plan.active():
        return
    if RESCALE.save is None:
        raise RuntimeError("register the function that saves the checkpoint with infill.on_rescale first")
    report(samples, step, loss, total, weight)
    if should_checkpoint():
        RESCALE.save()
        leave()
