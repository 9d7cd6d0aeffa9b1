"""What members of a job know each other by: a secret that only their agents hand out, and what follows from it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Optional

#: Length of a secret, and of a tag, bytes.
SECRET_BYTES = TAG_BYTES = 32


class Keys:
    """Those of one epoch. Without a secret, tags tell what was damaged, and nothing of who made them."""

    def __init__(self, secret: Optional[bytes], epoch: int) -> None:
        self.is_secret, self._epoch = secret is not None, epoch
        self._key = _tag(secret or b"", b"infill epoch", str(epoch).encode())

    def prefix(self) -> str:
        """Of the epoch's keys in the store: nobody else can name them."""
        return f"epoch/{self.tag('store').hex()}" if self.is_secret else f"epoch/{self._epoch}"

    def tag(self, purpose: str, *parts: bytes) -> bytes:
        """Proves that a member has said these `parts` in this epoch, for this purpose."""
        return _tag(self._key, purpose.encode(), *parts)

    def proves(self, tag: bytes, purpose: str, *parts: bytes) -> bool:
        """Whether it is theirs."""
        return hmac.compare_digest(tag, self.tag(purpose, *parts))


def _tag(key: bytes, *parts: bytes) -> bytes:
    made = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
