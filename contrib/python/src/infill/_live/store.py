"""The store through which ranks find each other. Any process can host one; each epoch connects again."""

from __future__ import annotations

import datetime
import socket
import threading
import time
from typing import Any, Callable, Tuple

import torch.distributed as dist

from . import sockets
from .keys import Keys

#: How long a running store may take to answer, seconds.
CLIENT_SECS = 20.0

#: Time between two tries to reach a store that is not up yet, seconds, and the time limit of one try.
RETRY_SECS, CONNECT_SECS = 0.1, 2.0

#: Time between two checks whether the others are there, seconds.
LEAST_PAUSE_SECS, MOST_PAUSE_SECS = 0.002, 0.05


class Server:
    """At most one store in this process."""

    def __init__(self) -> None:
        self._store: Any = None
        self._lock, self._epoch = threading.Lock(), 0

    @property
    def port(self) -> int:
        """The store's port; 0 if there is none."""
        store = self._store
        return int(store.port) if store else 0

    def open(self, epoch: int) -> int:
        """Makes a store unless there is one. Returns its port, chosen by the system. Raises RuntimeError on failure."""
        with self._lock:
            self._epoch = max(epoch, self._epoch)
            if self._store is None:
                self._store = _tcp_store("127.0.0.1", 0, is_master=True)
            return self.port

    def close_unless(self, epoch: int, port: int) -> None:
        """Ends this store once `epoch` has met at `port`, unless `port` is its own or it waits for a later epoch."""
        with self._lock:
            if self._epoch <= epoch and self.port != port:
                self._store = None

    def close(self) -> None:
        """Ends the store. Clients that still need it fail."""
        with self._lock:
            self._store = None


class Client:
    """A connection to the store of an epoch."""

    def __init__(self, address: Tuple[str, int]) -> None:
        self._address = address
        self._socket, self._before = sockets.Noted(), sockets.opened()
        self.store: Any = None

    def connect(self, is_outdated: Callable[[], bool]) -> None:
        """Raises RuntimeError if there is no store, after CLIENT_SECS, or as soon as `is_outdated` or shut down."""
        _wait_for(self._address, is_outdated)
        self.store = _tcp_store(*self._address, is_master=False)
        self._socket.note(self._before, only_peer_port=self._address[1])

    def shutdown(self) -> None:
        """Makes calls that wait for an answer fail at once. May be called from any thread."""
        if self.store is None:
            self._socket.note(self._before, only_peer_port=self._address[1])
        self._socket.shutdown()

    def close(self) -> None:
        """Ends the connection."""
        self.store = None
        self._socket.close()


def meet(store: Any, keys: Keys, rank: int, world: int, is_outdated: Callable[[], bool]) -> None:
    """Waits at the epoch's store until all ranks are there. Each rank calls this once.

    Raises RuntimeError if `is_outdated` or the connection is shut down.

    gloo's own meeting cannot be ended: a rank that waits for another one's call has no connection yet, and the other
    one may be waiting for a third.
    """
    if keys.is_secret:
        _meet_by_name(store, keys, rank, world, is_outdated)
        return
    store.add("here", 1)
    _poll(lambda: store.add("here", 0) >= world, is_outdated)


def _meet_by_name(store: Any, keys: Keys, rank: int, world: int, is_outdated: Callable[[], bool]) -> None:
    """Each rank proves that it is there. The first rank checks all proofs and says so. Other entries are ignored."""

    def proves(key: str, *words: object) -> bool:
        return store.check([key]) and keys.proves(store.get(key), *_said(key, *words))

    store.set(f"here/{rank}", keys.tag(*_said(f"here/{rank}")))
    if rank == 0:
        for other in range(world):
            _poll(lambda: proves(f"here/{other}"), is_outdated)  # noqa: B023, it is called at once
        store.set("all", keys.tag(*_said("all", world)))
    else:
        _poll(lambda: proves("all", world), is_outdated)


def _said(key: str, *words: object) -> Tuple[Any, ...]:
    return (key, *(str(word).encode() for word in words))


def _poll(is_so: Callable[[], bool], is_outdated: Callable[[], bool]) -> None:
    pause = LEAST_PAUSE_SECS
    while not is_so():
        if is_outdated():
            raise RuntimeError("not all members have come")
        time.sleep(pause)
        pause = min(2 * pause, MOST_PAUSE_SECS)


def _wait_for(address: Tuple[str, int], is_outdated: Callable[[], bool]) -> None:
    """Waits until a server listens there. PyTorch's own waiting for it cannot be ended."""
    end, error = time.monotonic() + CLIENT_SECS, None
    while time.monotonic() < end and not is_outdated():
        try:
            socket.create_connection(address, CONNECT_SECS).close()
            return
        except OSError as failed:
            error = failed
            time.sleep(RETRY_SECS)
    raise RuntimeError(f"the store at {address[0]}:{address[1]} cannot be reached: {error}")


def _tcp_store(host: str, port: int, is_master: bool) -> Any:
    # Not every build of PyTorch has libuv.
    return dist.TCPStore(
        host,
        port,
        None,
        is_master,
        timeout=datetime.timedelta(seconds=CLIENT_SECS),
        wait_for_workers=False,
        use_libuv=False,
    )
