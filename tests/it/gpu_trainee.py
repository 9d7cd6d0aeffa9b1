"""Stands for a training program on GPUs: each rank opens the GPU of its LOCAL_RANK, and logs whether it could.

The devices are those of slurm/minicluster: no driver serves them, so that the kernel says ENXIO for a GPU that the rank
may open, and EPERM for one that it may not. Each line of ranks.log is one start of one rank.
"""

import errno
import json
import os
import signal
import socket
import sys
import time

SEEN = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
LOCAL = int(os.environ["LOCAL_RANK"])


def may_open(gpu):
    try:
        os.close(os.open(f"/etc/slurm/gpu{gpu}", os.O_RDONLY))
    except OSError as error:
        return error.errno == errno.ENXIO
    return True


def note():
    gpu = SEEN[LOCAL] if LOCAL < len(SEEN) else None
    line = {
        "generation": int(os.environ["INFILL_GENERATION"]),
        "rank": int(os.environ["RANK"]),
        "world": int(os.environ["WORLD_SIZE"]),
        "node": os.environ["SLURMD_NODENAME"],
        "gpu": gpu,
        "opens": gpu is not None and may_open(gpu),
        "sees": len(SEEN),
        "may_open": sum(may_open(gpu) for gpu in range(4)),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
    }
    with open("ranks.log", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def leave(_number, _frame):
    sys.exit(0)


signal.signal(signal.SIGUSR1, leave)
note()
while not os.path.exists("enough"):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.sendto(b"samples=8", os.environ["INFILL_PROGRESS"])
    time.sleep(0.2)
