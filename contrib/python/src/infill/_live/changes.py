"""Changes the membership: at a step boundary that all agree on, or at once when a member is lost."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import traceback
from typing import Any, Dict, NoReturn, Optional

from .. import _plan
from .._rescale import RESCALE
from . import generators, works
from .checkpoint import Checkpoint
from .control import Control
from .group import Group, Transport
from .keys import Keys
from .messages import Change
from .model import Model
from .state import State, Unsuited, Worth
from .store import Server
from .watch import Watch

#: Time from a failed collective until the agent must have named a newer membership, seconds. Before, no process can
#: know whether a peer was lost or the program is wrong.
NEWER_SECS = 10.0

#: Time limits, seconds: for meeting the others; and for the state, besides the least time that its bytes take.
FORM_SECS, STATE_SECS, STATE_BYTES_PER_SEC = 20.0, 10.0, 50e6

#: Forming a group goes on for this long when a newer one is wanted already: the others may have formed it.
OUTDATED_SECS = 2.0

#: Time limit of all tries together, seconds, and their number. The number also limits steps that fail one after the
#: other. A restart does not take longer.
LADDER_SECS, MAX_TRIES = 30.0, 5

#: Time from the end of a group until everything that waits in it must have failed, seconds. Most fails within 0.1 s.
HANGS_SECS = 5.0

#: How long a training that has ended waits for operations that were given up, seconds.
SETTLE_SECS = 2.0

#: Time from giving up until the agent must have said what to do, seconds.
HOPELESS_SECS = 10.0


class Changes:
    """The sequence of this process's memberships."""

    def __init__(
        self,
        state: State,
        model: Model,
        control: Optional[Control],
        checkpoint: Optional[Checkpoint],
        transport: Transport,
    ) -> None:
        self._state, self._model, self._control, self._checkpoint = state, model, control, checkpoint
        self._transport = transport
        self.watch, self._server = Watch(), Server()
        self._group: Optional[Group] = None
        #: The group's epoch, and the newest that was tried. 0 is the epoch that the environment names.
        self.epoch, self._tried = 0, 0
        self.rank, self.world = 0, 1
        #: Number of groups so far. Code that hands out work for a group compares it to see whether the group is still
        #: current.
        self.formed = 0
        self._deadline, self._failures = 0.0, 0
        self._told_of: Optional[Group] = None
        #: Whether a group is being left, formed, or given the state.
        self._is_changing, self._changing_since = False, 0.0
        #: Whether this process waits for the agent's word after a failure.
        self._recovers = False
        #: Whether the user was warned that there is no secret.
        self._warned = False
        if control:
            control.on_tick, control.on_host, control.on_roll = self._tick, self._server.open, self._here
            RESCALE.is_led = lambda: control.alive

    # On the control thread.

    def _tick(self) -> None:
        control, group = self._control, self._group
        if group and group.aborted_at is None and not self._is_changing and self._is_over_time():
            group.abort()
            secs = self._transport.timeout.total_seconds()
            self._say("failed", error=f"the step has lasted longer than timeout_secs, {secs:g} s")
        if control and group and (group.aborted_at or self._is_outdated(group)):
            group.abort()
            if self._hangs(group):
                self._give_up(group, control.newest)
        overdue = self.watch.overdue()
        if overdue is not None:
            self._say("stuck", secs=round(overdue, 3))

    def _is_over_time(self) -> bool:
        is_stuck = self.watch.is_stuck(self._transport.timeout.total_seconds())
        return self.world > 1 and self.watch.is_under_way and is_stuck

    def _hangs(self, group: Group) -> bool:
        """Whether it waits for a lost peer in an operation that cannot be given up, as gloo may until its time-out."""
        limit, since = max(HANGS_SECS, 3 * self.watch.usual_secs), group.aborted_at
        changes = self._is_changing and group.is_met
        if changes:
            limit = max(limit, self._state.bytes() / STATE_BYTES_PER_SEC)
            # It may have waited for the agent's word since the group was ended.
            since = max(since or 0.0, self._changing_since)
        # Between steps, the program may do something else for a while, but the others cannot wait for it forever.
        is_away = self.watch.is_stuck(self._transport.timeout.total_seconds())
        waits = changes or self.watch.is_under_way or is_away and not (self._is_changing or self._recovers)
        return waits and since is not None and time.monotonic() > since + limit

    def _give_up(self, group: Group, newest: Optional[Change]) -> None:
        if newest and newest.leaves and newest.epoch > self.epoch:
            self._say("left", epoch=newest.epoch)
            os._exit(0)
        if group is not self._told_of:
            self._told_of = group
            self._say("hopeless", why="it hangs though its group was ended; nothing but a kill ends this process")

    def _is_outdated(self, group: Group) -> bool:
        control = self._control
        if control is None:
            return False
        if group.epoch < control.urgent_epoch:
            return True
        now, newest = time.monotonic(), control.newest
        is_newer = newest is not None and newest.epoch > group.epoch
        return group.forming and (now > self._deadline or is_newer and now > control.newest_at + OUTDATED_SECS)

    def _here(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "step": self._state.updates}

    # On the training's thread.

    @property
    def is_sound(self) -> bool:
        """Whether nothing has been aborted during the present step."""
        return self._group is None or self._group.aborted_at is None

    def may_be_a_loss(self, error: object) -> bool:
        """Whether a step may have failed with `error` because a member was lost."""
        # An aborted group makes PyTorch raise all sorts of errors.
        return isinstance(error, RuntimeError) or isinstance(error, Exception) and not self.is_sound

    def join(self) -> None:
        """Waits for a place and takes it. Raises RuntimeError if there is none."""
        if self._control is None:
            place = _plan.plan()
            self._follow(Change(0, False, False, place.rank, place.world_size))
            return
        self._say("ready")
        # Objects made so far are exempt from garbage collection: examining them at each change would take longer than
        # the change.
        gc.collect()
        gc.freeze()
        change = self._control.wait_newer(0, None)
        if change is None:
            raise RuntimeError("the agent is gone, and has given this process no place")
        try:
            self._follow(change)
        except Exception as error:
            self.recover(error)

    def total(self, number: float) -> float:
        """The sum of each rank's argument. Raises RuntimeError if a rank is lost."""
        return self._group.total(number) if self._group else number

    def committed(self) -> None:
        """Notes that the optimizer has made its update."""
        self._state.commit()
        self._failures = 0

    def boundary(self) -> None:
        """Ends a step: all ranks change together once all have heard of the same, newest membership.

        Raises RuntimeError if a rank is lost, SystemExit if this one leaves.
        """
        self._save_if_due()
        if not _plan.active() or self._group is None or self._group.agreement is None:
            return
        change = self._control.newest if self._control else None
        held = max(change.epoch if change else 0, self.epoch)
        largest = self._group.agreement.exchange([held, -held, RESCALE.asked])
        if largest is None:
            return
        newest, oldest, asked = largest[0], -largest[1], largest[2]
        if asked:
            self._leave_for_restart()
        if change and newest == oldest == change.epoch > self.epoch:
            self._follow(change)

    def recover(self, error: Exception) -> None:
        """Continues after a failure in the newest membership, or raises `error` or a later error."""
        control = self._control
        if control is None or not self.may_be_a_loss(error):
            raise error
        self._recovers = True
        try:
            self._climb(control, error)
        finally:
            self._recovers = False

    def _climb(self, control: Control, error: Exception) -> None:
        """Tries one membership after the other, and then the way of a restart."""
        end = time.monotonic() + LADDER_SECS
        self._failures += 1
        self._state.undo(error)
        # It does not hang any more. The next operation may take longer than a collective to fail.
        self.watch.end(counts=False)
        while self._failures <= MAX_TRIES and not isinstance(error, Unsuited):
            # Peers that wait for this rank must not have to wait for a time-out.
            if self._group:
                self._group.abort()
            self._say("failed", epoch=self._tried, error=str(error)[:500])
            # The failed step's tensors keep the group alive.
            traceback.clear_frames(error.__traceback__)
            left = min(NEWER_SECS, end - time.monotonic())
            change = control.wait_newer(self._tried, left, until=lambda: RESCALE.asked or control.save_asked)
            if change is None:
                break
            try:
                return self._follow(change)
            except Exception as failed:
                if not self.may_be_a_loss(failed):
                    raise
                error = failed
                self._failures += 1
        self._hopeless(error)

    def save(self) -> bool:
        """Writes the checkpoint on the responsible rank. Returns whether one with all own updates then exists.

        Raises OSError if that fails.
        """
        if self._state.worth == Worth.SPOILED:
            return False
        if self._checkpoint:
            return self._checkpoint.save(self._state.tree())
        if RESCALE.save:
            RESCALE.save()
        return True

    def close(self) -> None:
        """Called when all ranks have trained to the end."""
        if self._group and self._group.agreement:
            with contextlib.suppress(RuntimeError):
                self._group.agreement.wait()
        self._leave_group()
        works.settle(SETTLE_SECS)
        self._server.close()

    def _follow(self, change: Change) -> None:
        self._tried, self._changing_since = change.epoch, time.monotonic()
        self._is_changing = True
        try:
            if change.leaves:
                self._say("left", epoch=change.epoch)
                self._leave_group()
                RESCALE.depart()
            self._form(change)
        finally:
            self._is_changing = False

    def _form(self, change: Change) -> None:
        clock = _Clock()
        self._leave_group()
        works.check()
        clock.lap("tear")
        self._deadline = time.monotonic() + FORM_SECS
        group = self._group = Group(change.epoch, change.rank, change.world, self._transport, self._keys(change))
        if self._control:
            group.form(change.store, self._server, lambda: self._is_outdated(group))
        else:
            group.form_from_environment()
        clock.lap("form")
        self._deadline = time.monotonic() + self._state_secs()
        self._align(group)
        clock.lap("state")
        self._state.sampler.resize(change.rank, change.world)
        generators.seed(self._state.seed, self._state.updates, change.rank)
        self._state.back_to_commit()
        self._state.zero_grad()
        # Without an agent, no process ever gives up.
        self._model.wrap(group.exchange() if self._control and self._model.can_exchange else None)
        group.formed()
        self._state.keep()
        clock.lap("wrap")
        self._begin(change, group)
        self._say("regrouped", epoch=change.epoch, secs=clock.laps)

    def _keys(self, change: Change) -> Keys:
        if change.secret is None and self._control and not self._warned:
            self._warned = True
            print(
                "infill: an older infill on some node of this job hands out no secret: while the job changes its size, "
                "its processes cannot tell members from strangers",
                file=sys.stderr,
                flush=True,
            )
        return Keys(change.secret, change.epoch)

    def _begin(self, change: Change, group: Group) -> None:
        self._state.epoch = change.epoch if self._control else _plan.plan().generation
        self.epoch, self.rank, self.world = change.epoch, change.rank, change.world
        self.formed += 1
        if self._control:
            _plan.move(change.rank, change.world, change.nodes)
            self._server.close_unless(change.epoch, change.store[1])
        if group.agreement:
            RESCALE.use(group.agreement)

    def _leave_group(self) -> None:
        self.watch.end(counts=False)
        self._model.unwrap()
        gc.collect()
        if self._group:
            self._group.end()
            self._group = None

    def _align(self, group: Group) -> None:
        """The rank with the most updates gives its state to ranks with fewer updates and to newcomers."""
        state = self._state
        updates = group.gather(state.updates if state.worth == Worth.TRAINED else state.worth.value)
        most = max(updates)
        source = updates.index(most)
        if most == Worth.SPOILED.value:
            raise RuntimeError("all ranks that had the whole state are lost")
        if most == Worth.FRESH.value and group.rank == source:
            self._begin_training()
        need = [rank for rank in range(group.world) if rank != source and (most < 0 or updates[rank] != most)]
        if not need:
            return
        secs = self._state_secs() if self._control else self._transport.timeout.total_seconds()
        among = group.among(sorted([source, *need]), secs)
        if among and group.rank == source:
            state.send(source, among, group.keys, leave_out=self._control is None)
        elif among:
            state.receive(source, among, group.keys)
        if among:
            among.end()

    def _state_secs(self) -> float:
        """The time limit for giving the state to others, seconds."""
        return STATE_SECS + self._state.bytes() / STATE_BYTES_PER_SEC

    def _begin_training(self) -> None:
        saved = self._checkpoint.load() if self._checkpoint else None
        if saved is not None:
            self._state.load(saved)
        self._state.begun += 1
        self._state.worth = Worth.TRAINED

    def _save_if_due(self) -> None:
        control, checkpoint = self._control, self._checkpoint
        asked = control is not None and control.take_save()
        if checkpoint is None:
            if asked and RESCALE.save:
                RESCALE.save()
                self._say("saved")
            elif asked and control:
                control.say("error", text="there is no way to save: Elastic was given no checkpoint")
        elif asked:
            step = self._state.updates
            checkpoint.save_for(self._state.tree(), lambda: self._say("saved", step=step))
        elif self.rank == 0 and checkpoint.is_due():
            checkpoint.save_behind(self._state.tree())

    def _leave_for_restart(self) -> NoReturn:
        RESCALE.agree()
        if self.rank == 0 or not self._checkpoint:
            self.save()
        with contextlib.suppress(RuntimeError):
            RESCALE.leave()
        # A rank was lost while this one waited for all to have saved.
        RESCALE.depart()

    def _hopeless(self, error: Exception) -> NoReturn:
        """Takes the way of a restart: if the agent says so, saves the state in this process's memory and exits.

        Raises `error` if the agent says nothing for HOPELESS_SECS.
        """
        control = self._control
        assert control
        if self._group:
            self._group.abort()
        self._say("hopeless", why=str(error)[:500])
        end = time.monotonic() + HOPELESS_SECS
        while control.alive and time.monotonic() < end:
            if control.take_save():
                if self.save():
                    self._say("saved")
                end = time.monotonic() + HOPELESS_SECS
            newest = control.newest
            if RESCALE.asked or newest and newest.leaves and newest.epoch > self._tried:
                self._say("left", epoch=newest.epoch if newest else self._tried)
                RESCALE.depart()
            time.sleep(0.05)
        RESCALE.fail_with(error)
        raise error

    def _say(self, what: str, **fields: Any) -> None:
        if self._control:
            self._control.say(what, **{"epoch": self.epoch, "step": self._state.updates, **fields})


class _Clock:
    """The durations of the parts of a change, seconds."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self.laps: Dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._at, 6)
        self._at = now
