"""Random numbers: others on each rank, and the same whenever a training takes the same course."""

from __future__ import annotations

import hashlib
import random
import sys

import torch


def seed(training: int, updates: int, rank: int) -> None:
    """Seeds the generators of Python, NumPy and PyTorch on all devices, for `rank` from this update on.

    `training` is the seed of the whole training.
    """
    digest = hashlib.sha256(f"{training} {updates} {rank}".encode()).digest()
    random.seed(digest)
    torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    numpy = sys.modules.get("numpy")
    if numpy:
        numpy.random.seed([int.from_bytes(digest[at : at + 4], "big") for at in range(0, 32, 4)])
