"""The TCP sockets of a group. Another thread shuts them down to end operations that hang.

gloo's own abort does nothing: a collective whose peer is silent ends only at its time-out. But when its sockets are
shut down, here and so at the peers, it fails within milliseconds. Shutting down is not closing. It also works while
forked children hold copies, and leaves the descriptors to their owner.
"""

from __future__ import annotations

import os
import socket
from typing import Dict, Iterable, List

#: The kernel's name of each socket, by descriptor: a number may be used again for another socket.
Open = Dict[int, str]


def opened() -> Open:
    """The sockets of this process."""
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        name = _name(fd)
        if name.startswith("socket:"):
            found[fd] = name
    return found


def _name(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


class Noted:
    """The connections that were made since a given moment, except for those of a store's server."""

    def __init__(self) -> None:
        self._names: Dict[str, socket.socket] = {}

    def note(self, before: Open, *, not_ports: Iterable[int] = (), only_peer_port: int = 0) -> None:
        """Adds new sockets, not in `before`: no listeners, none to or from `not_ports`; if given, only to one port."""
        for fd, name in opened().items():
            if before.get(fd) == name or name in self._names:
                continue
            try:
                copy = socket.socket(fileno=os.dup(fd))
            except OSError:
                continue
            # In between, the number may have become another socket's.
            is_same = _name(copy.fileno()) == name
            if is_same and _is_wanted(copy, set(not_ports), only_peer_port):
                self._names[name] = copy
            else:
                copy.close()

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        """Makes operations that wait for one of them fail at once. May be called again."""
        for copy in list(self._names.values()):
            try:
                copy.shutdown(how)
            except OSError:
                pass

    def close(self) -> None:
        """Forgets all sockets."""
        copies: List[socket.socket] = list(self._names.values())
        self._names = {}
        for copy in copies:
            copy.close()


def _is_wanted(copy: socket.socket, not_ports: "set[int]", only_peer_port: int) -> bool:
    try:
        if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
            return False
        # gloo ends the process when its listener fails, and a store's server must not lose its clients.
        if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        here, there = copy.getsockname()[1], copy.getpeername()[1]
    except OSError:
        # Not connected yet, or no longer.
        return False
    if only_peer_port:
        return bool(there == only_peer_port)
    return here not in not_ports and there not in not_ports
