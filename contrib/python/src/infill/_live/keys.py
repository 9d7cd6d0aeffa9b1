"""The keys with which members of a job recognize each other. They derive from a secret that only agents hand out."""

from __future__ import annotations

import hashlib
import hmac
from typing import Optional

#: Length of a secret, and of a tag, bytes.
SECRET_BYTES = TAG_BYTES = 32


class Keys:
    """The keys of one epoch. Without a secret, tags detect damage but do not prove who made them."""

    def __init__(self, secret: Optional[bytes], epoch: int) -> None:
        self.is_secret, self._epoch = secret is not None, epoch
        self._key = _tag(secret or b"", b"infill epoch", str(epoch).encode())

    def prefix(self) -> str:
        """The prefix of the epoch's keys in the store. Processes without the secret cannot name them."""
        return f"epoch/{self.tag('store').hex()}" if self.is_secret else f"epoch/{self._epoch}"

    def tag(self, purpose: str, *parts: bytes) -> bytes:
        """The tag that proves that a member sent these `parts` in this epoch, for this purpose."""
        return _tag(self._key, purpose.encode(), *parts)

    def proves(self, tag: bytes, purpose: str, *parts: bytes) -> bool:
        """Whether the tag belongs to these parts."""
        return hmac.compare_digest(tag, self.tag(purpose, *parts))


def _tag(key: bytes, *parts: bytes) -> bytes:
    made = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
