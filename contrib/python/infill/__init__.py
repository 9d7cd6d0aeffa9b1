"""Tells infill how far a training program is.

    import infill
    infill.report(samples=len(batch), step=step, loss=float(loss))

Every process may report what it did itself: the counts of all processes are added up. Outside infill, and when the
agent is not listening, a report does nothing.
"""

import os
import socket

__all__ = ["report"]

_socket = None


def report(samples, step=None, loss=None):
    """Reports `samples` processed since this process's last report, and, if given, the present step and loss."""
    global _socket
    path = os.environ.get("INFILL_PROGRESS")
    if not path:
        return
    text = f"samples={samples}"
    if step is not None:
        text += f" step={step}"
    if loss is not None:
        text += f" loss={loss}"
    try:
        if _socket is None:
            _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            # Training never waits for a report to be read.
            _socket.setblocking(False)
        _socket.sendto(text.encode(), path)
    except OSError:
        pass
