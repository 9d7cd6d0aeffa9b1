"""Reports progress in datagrams to the agent's socket."""

from __future__ import annotations

import os
import socket
import time
from typing import Optional, SupportsFloat

from ._version import __version__

#: The weights that the agent accepts.
LEAST_WEIGHT, MOST_WEIGHT = 0.1, 10.0

#: How long the report that a checkpoint was saved is tried again, if the agent is behind, seconds.
REPORT_SECS = 1.0

_socket: Optional[socket.socket] = None

#: Samples of reports that the agent had no room for.
_held_back = 0.0

#: Whether the agent knows the package's version: it compares it with its own.
_is_introduced = False


def report(
    samples: SupportsFloat,
    step: Optional[int] = None,
    loss: Optional[SupportsFloat] = None,
    total: Optional[SupportsFloat] = None,
    weight: Optional[SupportsFloat] = None,
) -> None:
    """Reports the samples that this process has processed since its last report, and the present step and loss.

    `total` is the number of steps in the whole training (of samples, where no step is named). It tells infill when
    the job will end, and overrides all other knowledge of infill about that. `weight`, from 0.1 to 10, says how much
    this job counts among the jobs of the same user. It is 1 at first, and stays as it was where it is not named.

    Every process may report its own samples: the agent adds them up. The call never waits, except for the value of a
    `loss` that a device still computes, and never raises. A report that cannot be sent is dropped. If the agent is
    only behind, the next report counts its samples. Outside infill the call does nothing.
    """
    global _held_back, _is_introduced
    if "INFILL_PROGRESS" not in os.environ:
        return
    try:
        done = float(samples) + _held_back
        words = [f"samples={done!r}"]
        if step is not None:
            words.append(f"step={int(step)}")
        if loss is not None:
            words.append(f"loss={float(loss)!r}")
        if total is not None:
            words.append(f"total={float(total)!r}")
        if weight is not None:
            words.append(f"weight={min(max(float(weight), LEAST_WEIGHT), MOST_WEIGHT)!r}")
        if not _is_introduced:
            words.append(f"package={__version__}")
        is_sent = _send(words)
        _held_back, _is_introduced = 0.0 if is_sent else done, _is_introduced or is_sent
    except Exception:  # Training never fails for the sake of a report.
        pass


def report_saved(secs: float) -> None:
    """Tells the agent how long saving took, in seconds. Tries for a while if the agent is behind."""
    if "INFILL_PROGRESS" in os.environ:
        give_up_at = time.monotonic() + REPORT_SECS
        # An agent that does not know the key still finds one that it knows.
        while not _send(["samples=0", f"saved={secs:.6f}"]) and time.monotonic() < give_up_at:
            time.sleep(0.02)


def _send(words: list[str]) -> bool:
    """Sends one datagram; False if it may go through later."""
    global _socket
    try:
        if _socket is None:
            _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            _socket.setblocking(False)
        _socket.sendto(" ".join(words).encode(), os.environ["INFILL_PROGRESS"])
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
