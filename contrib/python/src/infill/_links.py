"""Connections between rank 0 and the other ranks: small messages that each side has proved."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from typing import List, Optional, Tuple

from . import _munge
from ._live.keys import TAG_BYTES, Keys
from ._plan import Plan

#: Ports after MASTER_PORT, which the program itself may use. Rank 0 takes the first free one.
_PORTS = 16

#: How long one step of a meeting may take, seconds.
GREETING_SECS = 5

_BODY = struct.Struct("!cq")
FRAME_BYTES = _BODY.size + TAG_BYTES

Frame = Tuple[bytes, int]


class Stranger(Exception):
    """The other side does not prove that it is a rank of this job."""


class Link:
    """A connection whose other side is known. Each message has a number and a tag: none can be made up or repeated."""

    def __init__(self, connection: socket.socket, keys: Keys, nonce: bytes, is_hub: bool) -> None:
        self._socket, self._keys, self._nonce = connection, keys, nonce
        self._here, self._there = ("from hub", "from rank") if is_hub else ("from rank", "from hub")
        self._sent = self._heard = 0

    def send(self, kind: bytes, number: int = 0) -> None:
        """Sends a message. Raises OSError."""
        body = _BODY.pack(kind, number)
        self._socket.sendall(body + self._tag(self._here, self._sent, body))
        self._sent += 1

    def heard(self, frame: bytes) -> Frame:
        """The message in these bytes, which are the next ones of the other side. Raises Stranger."""
        body, tag = frame[: _BODY.size], frame[_BODY.size :]
        if not self._keys.proves(tag, self._there, self._nonce, struct.pack("!q", self._heard), body):
            raise Stranger("a message was altered")
        self._heard += 1
        kind, number = _BODY.unpack(body)
        return kind, number

    def receive(self) -> Optional[Frame]:
        """Waits for the next message; None at the end. Raises OSError or Stranger."""
        frame = _exactly(self._socket, FRAME_BYTES)
        return self.heard(frame) if frame else None

    def close(self) -> None:
        """Ends the connection, also if forked children hold copies of it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _tag(self, purpose: str, number: int, body: bytes) -> bytes:
        return self._keys.tag(purpose, self._nonce, struct.pack("!q", number), body)


def greeting(place: Plan, rank: int, key: str) -> bytes:
    """What a rank seals for rank 0: purpose, place in the job, and a new key. It is worthless for anything else."""
    return f"infill1 agreement {place.job} {place.generation} {place.world_size} {rank} {key}".encode()


def join(place: Plan) -> Link:
    """Connects this rank to rank 0. Raises OSError, Stranger or MungeFailed."""
    host, first = meeting_point()
    failed: Optional[Exception] = None
    for port in range(first, first + _PORTS):
        try:
            connection = socket.create_connection((host, port), GREETING_SECS)
        except OSError as error:
            failed = failed or error
            continue
        try:
            return _greet(connection, place)
        except (OSError, Stranger) as error:
            connection.close()
            failed = error
        except _munge.MungeFailed:
            connection.close()
            raise
    raise failed or Stranger("no program listens")


def _greet(connection: socket.socket, place: Plan) -> Link:
    key = secrets.token_hex(32)
    keys = Keys(bytes.fromhex(key), place.generation)
    connection.sendall(_munge.seal(greeting(place, place.rank, key)) + b"\n")
    answer = _exactly(connection, 2 * TAG_BYTES)
    nonce, tag = answer[:TAG_BYTES], answer[TAG_BYTES:]
    if not answer or not keys.proves(tag, "hub", nonce):
        raise Stranger("another program listens there")
    connection.sendall(keys.tag("rank", nonce))
    _be_patient(connection)
    return Link(connection, keys, nonce, is_hub=False)


class Newcomer:
    """A connection to rank 0 whose other side has not proved yet which rank it is. It never blocks."""

    def __init__(self, connection: socket.socket, place: Plan) -> None:
        connection.setblocking(False)
        self.socket, self._place = connection, place
        self.until = time.monotonic() + GREETING_SECS
        self._buffer, self._nonce, self._rank = b"", os.urandom(TAG_BYTES), 0
        self._keys: Optional[Keys] = None

    def read(self) -> Optional[Tuple[int, Link]]:
        """Takes what has arrived: its rank and the link, once it is known. Raises OSError or Stranger."""
        arrived = self.socket.recv(_munge.MAX_BYTES)
        self._buffer += arrived
        if not arrived or len(self._buffer) > _munge.MAX_BYTES:
            raise Stranger("no greeting")
        if self._keys is None and b"\n" in self._buffer:
            credential, _, self._buffer = self._buffer.partition(b"\n")
            self._open(credential)
        if self._keys is None or len(self._buffer) < TAG_BYTES:
            return None
        if not self._keys.proves(self._buffer[:TAG_BYTES], "rank", self._nonce) or self._buffer[TAG_BYTES:]:
            raise Stranger("a greeting of another process")
        _be_patient(self.socket)
        self.socket.setblocking(False)
        return self._rank, Link(self.socket, self._keys, self._nonce, is_hub=True)

    def _open(self, credential: bytes) -> None:
        try:
            words = _munge.opened(credential).split(b" ")
            rank, key = int(words[-2]), words[-1].decode()
            keys = Keys(bytes.fromhex(key), self._place.generation)
        except (_munge.MungeFailed, ValueError, IndexError) as error:
            raise Stranger(str(error)) from None
        if b" ".join(words) != greeting(self._place, rank, key) or not 0 < rank < self._place.world_size:
            raise Stranger("a rank of another job")
        self._keys, self._rank = keys, rank
        self.socket.sendall(self._nonce + keys.tag("hub", self._nonce))


def listen(place: Plan) -> socket.socket:
    """A listener for the other ranks, on this node's address alone. Raises OSError."""
    host, first = meeting_point()
    family, address = _own_address(host, place)
    failed = OSError("no free port")
    for port in range(first, first + _PORTS):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((address, port))
            listener.listen(place.world_size)
            listener.setblocking(False)
            return listener
        except OSError as error:
            listener.close()
            failed = error
    raise failed


def meeting_point() -> Tuple[str, int]:
    """Rank 0's host, and the first port that may be its. Raises OSError."""
    try:
        # All `_PORTS` ports must exist, also behind the highest MASTER_PORT.
        return os.environ["MASTER_ADDR"], min(int(os.environ["MASTER_PORT"]), 65535 - _PORTS) + 1
    except (KeyError, ValueError):
        raise OSError("MASTER_ADDR and MASTER_PORT do not say where rank 0 is") from None


def _own_address(host: str, place: Plan) -> Tuple[int, str]:
    family, address = _resolved(host)
    # On some systems a node calls itself by an address that means another machine elsewhere: 127.0.1.1.
    for other in place.nodes if _is_loopback(address) else ():
        try:
            its_family, its_address = _resolved(other)
        except OSError:
            continue
        if not _is_loopback(its_address):
            with socket.socket(its_family, socket.SOCK_DGRAM) as probe:
                # This sends nothing. It finds the address from which that node is reached.
                probe.connect((its_address, 9))
                return its_family, probe.getsockname()[0]
    return family, address


def _resolved(host: str) -> Tuple[int, str]:
    found: List[Tuple[int, str]] = [
        (family, str(address[0])) for family, _, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    ]
    return found[0]


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _be_patient(connection: socket.socket) -> None:
    """Messages are rare. A node that falls silent ends the connection after half a minute."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _exactly(connection: socket.socket, size: int) -> bytes:
    """That many bytes; empty if the connection ends before."""
    found = b""
    while len(found) < size:
        arrived = connection.recv(size - len(found))
        if not arrived:
            return b""
        found += arrived
    return found
