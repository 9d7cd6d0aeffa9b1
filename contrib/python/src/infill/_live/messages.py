"""Reads the agent's messages and rejects invalid ones. contrib/CONTROL.md is the contract."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Callable, Dict, Optional, Tuple

#: The newest version that this process speaks, and the oldest one: without secrets.
VERSION, FIRST_VERSION = 2, 1

#: Longest line that is read, bytes: the names of thousands of nodes fit.
MAX_LINE_BYTES = 1 << 20


class Malformed(ValueError):
    """A line that is not a valid message. Says what was expected."""


@dataclasses.dataclass(frozen=True)
class Change:
    """A membership from the point of view of this process: `regroup`, or `leave`."""

    epoch: int
    #: Whether a member is lost: hanging operations are ended now, not at a step boundary.
    urgent: bool
    leaves: bool
    rank: int = 0
    world: int = 1
    #: Host and port of the rendezvous store.
    store: Tuple[str, int] = ("", 0)
    nodes: Optional[Tuple[str, ...]] = None
    #: The secret with which members recognize each other there, if they have one. Never printed.
    secret: Optional[bytes] = dataclasses.field(default=None, repr=False)


def parse(line: bytes) -> Optional[Dict[str, Any]]:
    """A message of the agent; None if its type is unknown.

    Raises Malformed if it is not a message, or lacks a field of its type.
    """
    try:
        message = json.loads(line)
    except ValueError:
        raise Malformed("expected a JSON object on a line of its own") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Malformed('expected a JSON object with a "type" that is a string')
    fields = _FIELDS.get(message["type"])
    if fields is None:
        return None
    for name, (wanted, is_right) in fields.items():
        if not is_right(message.get(name)):
            raise Malformed(f'expected "{name}" in "{message["type"]}" to be {wanted}')
    if message["type"] == "regroup" and message["rank"] >= message["world"]:
        raise Malformed('expected "rank" in "regroup" to be less than "world"')
    return message


def change(message: Dict[str, Any]) -> Change:
    """The membership in a `regroup` or `leave`."""
    epoch, urgent = message["epoch"], bool(message.get("urgent"))
    if message["type"] == "leave":
        return Change(epoch, urgent, leaves=True)
    host, _, port = message["store"].rpartition(":")
    nodes = tuple(message["nodes"]) if message.get("nodes") else None
    secret = bytes.fromhex(message["secret"]) if message.get("secret") is not None else None
    store = (host.strip("[]"), int(port))
    return Change(epoch, urgent, False, message["rank"], message["world"], store, nodes, secret)


def _is_number(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_address(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    host, _, port = value.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16


def _are_names(value: Any) -> bool:
    return value is None or isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_secret(value: Any) -> bool:
    return value is None or isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


_EPOCH = ("an integer from 1 on", _is_number(1))
_URGENT = ("true or false", _is_flag)

#: The fields of each known type.
_FIELDS: Dict[str, Dict[str, Tuple[str, Callable[[Any], bool]]]] = {
    "welcome": {"version": _EPOCH},
    "host": {"epoch": _EPOCH},
    "regroup": {
        "epoch": _EPOCH,
        "rank": ("an integer from 0 on", _is_number(0)),
        "world": ("an integer from 1 on", _is_number(1)),
        "store": ('"host:port"', _is_address),
        "secret": ("32 bytes in hexadecimal", _is_secret),
        "nodes": ("a list of strings", _are_names),
        "urgent": _URGENT,
    },
    "leave": {"epoch": _EPOCH, "urgent": _URGENT},
    "save": {},
    "roll": {},
    "error": {"text": ("a string", lambda value: isinstance(value, str))},
}
