"""torch.distributed's process groups in one epoch. Another thread can end operations that hang in them."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist

from .._agreement import Agreement
from . import sockets, torch_private, works
from .among import Among, rests, synchronize
from .keys import SECRET_BYTES, TAG_BYTES, Keys
from .store import Client, Server, meet

#: For NCCL. PyTorch's watchdog must not end the process over a lost peer, nor may the monitor of that watchdog, which
#: stands still during an abort. Nor may it sleep for a minute over that, so that others can write down what they did
#: (four times this value): a group does not end meanwhile. Communicators with NVLink SHARP cannot be aborted.
NCCL_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    "NCCL_NVLS_ENABLE": "0",
}

#: How long an abort of NCCL waits for the training's thread to have given the device all work of the step, seconds.
#: The abort frees the communicator, which that thread uses until then. Thereafter it waits for the device.
LAUNCH_SECS = 1.0

#: A communicator takes memory beside PyTorch's own, which may have reserved the rest. Below this, it gives some back.
COMMUNICATOR_BYTES = 2 << 30


#: No peer receives what is sent with this tag.
WAKING_TAG = (1 << 30) + 1


@dataclasses.dataclass(frozen=True)
class Transport:
    """How ranks reach each other: torch.distributed's name of the backend, the model's device, and the time-out."""

    backend: str
    device: torch.device
    timeout: datetime.timedelta

    @property
    def is_nccl(self) -> bool:
        """Whether the backend includes NCCL."""
        return "nccl" in self.backend


class Group:
    """The default process group of an epoch, with an agreement over its ranks."""

    def __init__(self, epoch: int, rank: int, world: int, transport: Transport, keys: Keys) -> None:
        self.epoch, self.rank, self.world = epoch, rank, world
        self._transport, self.keys = transport, keys
        #: Random bytes of all ranks, in their order. So each proof holds only for the present members.
        self._nonces = b""
        self.agreement: Optional[Agreement] = None
        self._lock = threading.Lock()
        #: Whether it is still being made: connections may yet be added.
        self.forming = True
        #: Whether all members are there. From then on, an operation that hangs may hang for good.
        self.is_met = False
        #: When hanging operations were first ended, by the monotonic clock.
        self.aborted_at: Optional[float] = None
        self._before: sockets.Open = {}
        self._sockets = sockets.Noted()
        self._works = works.Works()
        self._store_ports: Callable[[], List[int]] = list
        self._client: Optional[Client] = None
        #: Ends NCCL's work on the device. PyTorch's default group must not change before this is done.
        self._aborting: Optional[threading.Thread] = None
        #: The groups concerned: they end on the training's thread.
        self._aborted: List[Any] = []
        self._ended = False
        self._thread = threading.get_ident()

    def form(self, address: Tuple[str, int], server: Server, is_outdated: Callable[[], bool]) -> None:
        """Meets the other members at the store. Raises RuntimeError if that fails or is aborted."""
        client = Client(address)
        with self._lock:
            self._client = client
        client.connect(is_outdated)
        with self._lock:
            self._before = sockets.opened()
            # Others become clients of our own store at any time.
            self._store_ports = lambda: [address[1], server.port]
        store = dist.PrefixStore(self.keys.prefix(), client.store)
        meet(store, self.keys, self.rank, self.world, is_outdated)
        self.is_met = True
        self._init(store=store)

    def form_from_environment(self) -> None:
        """Meets the other ranks where the launcher says. Without a launcher the process is alone."""
        if self.world == 1:
            self._init(store=dist.HashStore())
        else:
            # Not every build of PyTorch has libuv.
            os.environ.setdefault("USE_LIBUV", "0")
            self._init()

    def _init(self, **how: Any) -> None:
        # A failed group has left its number behind, and the others would look for this one under another name.
        torch_private.forget_group_number()
        self._make_room()
        with _own_excepthook(), self._making():
            ours = self._transport
            dist.init_process_group(ours.backend, rank=self.rank, world_size=self.world, timeout=ours.timeout, **how)
            self.agreement = Agreement(self._works.wait)
        self._nonces = b"".join(self._exchange(os.urandom(SECRET_BYTES))) if self.keys.is_secret else b""
        # A process without the secret may have led some members to ranks of its own.
        self._exchange_proved("rank", b"")
        self._connect(dist.group.WORLD)

    def _make_room(self) -> None:
        device = self._transport.device
        if self._transport.is_nccl and device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            if free < COMMUNICATOR_BYTES:
                torch.cuda.empty_cache()

    def gather(self, number: int) -> List[int]:
        """The argument of each rank. Raises RuntimeError if a rank is lost, or does not prove that it is a member."""
        if not self.keys.is_secret:
            mine = torch.tensor([number])
            return [int(each) for each in self._gather(mine)]
        said = self._exchange_proved("number", number.to_bytes(8, "big", signed=True))
        return [int.from_bytes(each, "big", signed=True) for each in said]

    def total(self, number: float) -> float:
        """The sum of each rank's argument. Raises RuntimeError if a rank is lost."""
        assert self.agreement
        added, group = torch.tensor([number], dtype=torch.float64), self.agreement.group
        self._works.wait(group, lambda: dist.all_reduce(added, group=group, async_op=True))
        return float(added)

    def _exchange_proved(self, purpose: str, said: bytes) -> List[bytes]:
        """The bytes of each rank, all of one length. Raises RuntimeError if a rank cannot prove that it is a member."""
        keys = self.keys
        if not keys.is_secret:
            return []

        def parts(rank: int, said: bytes) -> Tuple[str, bytes, bytes, bytes]:
            return purpose, f"{rank} of {self.world}".encode(), self._nonces, said

        all_said = []
        for rank, each in enumerate(self._exchange(keys.tag(*parts(self.rank, said)) + said)):
            if not keys.proves(each[:TAG_BYTES], *parts(rank, each[TAG_BYTES:])):
                raise RuntimeError(f"rank {rank} of {self.world} does not prove that it is a member")
            all_said.append(each[TAG_BYTES:])
        return all_said

    def _exchange(self, said: bytes) -> List[bytes]:
        return [bytes(each.tolist()) for each in self._gather(torch.tensor(list(said), dtype=torch.uint8))]

    def _gather(self, mine: torch.Tensor) -> List[torch.Tensor]:
        gathered = [torch.zeros_like(mine) for _ in range(self.world)]
        assert self.agreement
        group = self.agreement.group
        self._works.wait(group, lambda: dist.all_gather(gathered, mine, group=group, async_op=True))
        return gathered

    def among(self, ranks: List[int], secs: float) -> Optional[Among]:
        """A group of some of the ranks, with its time-out. None for ranks outside of it.

        All ranks must call it. Raises RuntimeError if a rank is lost.
        """
        with self._making():
            device = host = dist.new_group(ranks, backend="gloo", timeout=datetime.timedelta(seconds=secs))
            if self._transport.backend != "gloo":
                device = dist.group.WORLD if len(ranks) == self.world else dist.new_group(ranks)
        if self.rank not in ranks:
            return None
        if device not in (host, dist.group.WORLD):
            self._connect(device)
        return Among(host, device, self._works)

    def exchange(self) -> Optional[Among]:
        """A group of all ranks for DistributedDataParallel on processors; None if its own exchange can be given up.

        All ranks must call it. Raises RuntimeError if a rank is lost.
        """
        if self._transport.backend != "gloo" or self.world == 1:
            return None
        # A separate group, because the training's other exchanges have an order of their own.
        with self._making():
            return Among(dist.new_group(timeout=self._transport.timeout), dist.group.WORLD, self._works)

    def formed(self) -> None:
        """Notes that all parts of the group have been made."""
        with self._lock:
            self._note()
            self.forming = False
            if self._client:
                self._client.close()
                self._client = None

    def abort(self) -> None:
        """Makes collectives and the forming fail at once, here and at the peers; from any thread, repeatedly."""
        with self._lock:
            first = self.aborted_at is None
            self.aborted_at = self.aborted_at or time.monotonic()
            if self._ended:
                return
            if self._client:
                self._client.shutdown()
            if self.forming:
                self._note()
            # Here first, then for the peers: gloo waits until its time-out for data that it sends on a connection
            # whose end it has not noticed.
            self._sockets.shutdown(socket.SHUT_RD if first else socket.SHUT_RDWR)
            _wake_senders()
            self._works.give_up()
            if self._launches():
                return
            if not self._aborting and self._has_nccl() and not self._works.are_elsewhere():
                self._aborted = [group for group, _ in torch_private.groups()]
                self._aborting = threading.Thread(target=torch_private.abort_all_nccl, daemon=True)
                self._aborting.start()

    def _launches(self) -> bool:
        """Whether the training's thread may just be giving NCCL work. Then the abort is for the next call."""
        return not rests(self._thread) and time.monotonic() < (self.aborted_at or 0.0) + LAUNCH_SECS

    def end(self) -> None:
        """Ends the group on the training's thread."""
        with self._lock:
            if self.forming:
                self._note()
            self._sockets.shutdown(socket.SHUT_RD)
            self._ended = True
        self._end_nccl()
        self.agreement = None
        if dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
        works.keep(self._works)
        with self._lock:
            self._sockets.shutdown()
            self._sockets.close()
            if self._client:
                self._client.close()
                self._client = None

    def _connect(self, group: Any) -> None:
        """For NCCL: the first use of a group by its ranks cannot be aborted, but it can be given up."""
        device = self._transport.device
        if self._transport.is_nccl and device.type == "cuda":
            self._works.elsewhere(functools.partial(_use, group, device, dist.group.WORLD))

    def _has_nccl(self) -> bool:
        return self._transport.is_nccl and dist.is_initialized()

    def _end_nccl(self) -> None:
        """Runs the abort, except while a call that was given up still runs elsewhere: the abort would wait for it."""
        if self._aborting:
            self._aborting.join()
            self._aborted.clear()
        elif self._has_nccl() and self._works.are_elsewhere():
            # PyTorch ends the groups whose names it knows, and forgets the others.
            torch_private.forget_group_names()
        elif self._has_nccl() and self.aborted_at:
            # Ends the kernels that wait for a peer.
            torch_private.abort_all_nccl()

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        """Inside this context, the making of gloo groups can be given up: the peer that must call first may be lost."""
        with torch_private.gloo_groups_made_by(self._works.elsewhere):
            yield

    def _note(self) -> None:
        if self._before:
            self._sockets.note(self._before, not_ports=self._store_ports())


def _wake_senders() -> None:
    """Makes all present groups of gloo fail operations that wait for a lost peer.

    When a connection ends, gloo wakes operations that wait to receive. It does not wake those that wait until a peer
    is ready for their data, because the peer may just have finished. It wakes these with the next operation on the
    connection, which fails.
    """
    for part, backend in torch_private.groups():
        for peer in range(part.size() if "gloo" in backend else 0):
            if peer != part.rank():
                with contextlib.suppress(RuntimeError):
                    part.send([torch.zeros(1)], peer, WAKING_TAG)


def _use(group: Any, device: torch.device, _default: Any) -> None:
    """Runs on a separate stream, so that nothing else waits for it if it never ends.

    While it runs, the default group cannot end either, because it would wait for it.
    """
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream()):
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        synchronize(device)


@contextlib.contextmanager
def _own_excepthook() -> Iterator[None]:
    """Restores the exception hook afterwards. Every new process group wraps it once more."""
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook


def warm_up(backend: str, use: Callable[[], object]) -> None:
    """Calls `use` in a group of this process alone, so that the work of a first use is done."""
    with _own_excepthook():
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        use()
    finally:
        dist.destroy_process_group()
