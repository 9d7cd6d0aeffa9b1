"""Seals texts for this user's processes on other nodes, with the programs of MUNGE."""

from __future__ import annotations

import os
import re
import subprocess
from typing import List

#: How long a program may take, seconds. munged answers in milliseconds unless it has a problem.
_PROGRAM_SECS = 5

#: Exit codes of `unmunge` for a sound credential, also if it is old or was read here before. Both are acceptable,
#: because the credential only seals and proves nothing.
_SOUND = (0, 15, 16, 17)

_UID = re.compile(rb"UID:.*\((\d+)\)")

#: Longest credential, bytes. Ours have some 300.
MAX_BYTES = 4096

#: The start of every credential.
START = b"MUNGE:"


class MungeFailed(Exception):
    """MUNGE cannot seal or open something; the text says why."""


def seal(text: bytes) -> bytes:
    """A credential, one line, that only this user can open. Raises MungeFailed."""
    code, sealed = _run(["munge", f"--restrict-uid={os.getuid()}"], text)
    if code or not sealed.startswith(START) or len(sealed) > MAX_BYTES:
        raise MungeFailed(f"munge ended with code {code}")
    return sealed.strip()


def opened(credential: bytes) -> bytes:
    """The text that a process of this user has sealed. Raises MungeFailed, also if another user has sealed it."""
    if not credential.startswith(START) or len(credential) > MAX_BYTES:
        raise MungeFailed("expected a credential of MUNGE")
    code, found = _run(["unmunge", "--keys=UID"], credential)
    if code not in _SOUND:
        raise MungeFailed(f"unmunge ended with code {code}")
    head, _, text = found.partition(b"\n\n")
    uid = _UID.fullmatch(head.strip())
    if not uid or int(uid[1]) != os.getuid():
        raise MungeFailed("another user has made it")
    return text.strip()


def _run(words: List[str], text: bytes) -> "tuple[int, bytes]":
    # Secrets are only on standard input and output, never in an error.
    try:
        done = subprocess.run(
            words, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_PROGRAM_SECS, check=False
        )
    except FileNotFoundError:
        raise MungeFailed(f"there is no program {words[0]} here") from None
    except subprocess.TimeoutExpired:
        raise MungeFailed(f"{words[0]} does not answer") from None
    except OSError as error:
        raise MungeFailed(f"cannot run {words[0]}: {error.strerror}") from None
    return done.returncode, done.stdout
