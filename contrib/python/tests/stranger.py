"""Somebody on the same network who has no part in a training, and tries to take one.

    stranger.py flood PORT|all SECS              writes what members write, under the keys that it can guess
    stranger.py join PORT EPOCH RANK WORLD TRACE SECS
                                                 takes a member's place, and hands over a pickle that makes the folder TRACE

Says `at PORT` once it is connected, and at the end how it went.
"""

import datetime
import os
import pathlib
import pickle
import sys
import threading
import time

import torch
import torch.distributed as dist

#: Epochs that it writes for, and ranks in each.
EPOCHS, RANKS = range(1, 40), range(8)


class Called:
    """What a pickle calls when it is read."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (self.trace,)


def connect(port, timeout):
    store = dist.TCPStore("127.0.0.1", port, None, False, timeout=timeout, wait_for_workers=False, use_libuv=False)
    print(f"at {port}", flush=True)
    return store


def listening():
    """Ports on which somebody listens."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in pathlib.Path(table).read_text().splitlines()[1:]]
        found.update(int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A")
    return found


def flood(port, end):
    store = connect(port, datetime.timedelta(seconds=2))
    while time.monotonic() < end:
        for epoch in EPOCHS:
            store.add(f"epoch/{epoch}/here", 1)
            for name in ("all", *(key.format(rank) for rank in RANKS for key in ("here/{}", "0//cpu//0/{}", "0//1//cpu//0/{}"))):
                store.set(f"epoch/{epoch}/{name}", "forged")


def flood_all(secs):
    """Whatever stores there are, and those that are opened meanwhile."""
    end, tried = time.monotonic() + secs, set()
    while time.monotonic() < end:
        for port in listening() - tried:
            tried.add(port)
            threading.Thread(target=lambda port=port: try_to(flood, port, end), daemon=True).start()
        time.sleep(0.2)


def try_to(do, *words):
    try:
        do(*words)
    except Exception as error:  # Not every port is a store's, and a store ends.
        print(f"{words[0]}: {error!s:.100}", file=sys.stderr, flush=True)


def join(port, epoch, rank, world, trace, secs):
    """As a member of an infill from before there were secrets would."""
    patience = datetime.timedelta(seconds=secs)
    store = dist.PrefixStore(f"epoch/{epoch}", connect(port, patience))
    store.add("here", 1)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=patience)
    agreement = dist.new_group(backend="gloo", timeout=patience)
    dist.all_reduce(torch.zeros(1, dtype=torch.float64), op=dist.ReduceOp.MAX, group=agreement)
    numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(numbers, torch.tensor([1 << 40]), group=agreement)
    among = dist.new_group(list(range(world)), backend="gloo", timeout=patience)
    data = torch.frombuffer(bytearray(pickle.dumps(Called(trace))), dtype=torch.uint8)
    dist.broadcast(torch.tensor([data.numel()]), rank, group=among)
    dist.broadcast(data, rank, group=among)


def main(how, port, *words):
    if how == "flood" and port == "all":
        flood_all(float(words[0]))
    elif how == "flood":
        try_to(flood, int(port), time.monotonic() + float(words[0]))
    else:
        try_to(join, int(port), *map(int, words[:3]), words[3], float(words[4]))
    print("done", flush=True)
    # PyTorch would wait for what it has not got.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
