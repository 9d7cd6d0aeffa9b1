"""A stranger on the same network, who is not part of a training and tries to take part.

    stranger.py flood PORT|FILE SECS             writes what members write, under the keys that it can guess; FILE lists ports,
                                                 now or later
    stranger.py join PORT EPOCH RANK WORLD TRACE SECS
                                                 takes a member's place, and hands over a pickle that makes the folder TRACE
    stranger.py ports FILE SECS                  lists in FILE where programs of Python listen; for root

Prints `at PORT` once it is connected, and the result at the end.
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
    """The function that a pickle calls when it is read."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (self.trace,)


def connect(port, timeout):
    store = dist.TCPStore("127.0.0.1", port, None, False, timeout=timeout, wait_for_workers=False, use_libuv=False)
    print(f"at {port}", flush=True)
    return store


def listening():
    """Ports at which programs of Python listen, and no others: a connection to srun's port that says nothing holds srun up."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in pathlib.Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    ports = {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().startswith("python"):
                found.update(ports.get(os.readlink(fd), 0) for fd in (process / "fd").iterdir())
        except OSError:  # It, or what it had open, is gone.
            continue
    return found - {0}


def list_ports(file, end):
    new = file.with_suffix(".new")
    while time.monotonic() < end:
        new.write_text("\n".join(map(str, listening())))
        new.replace(file)
        time.sleep(0.2)


def listed(file):
    return set(map(int, file.read_text().split())) if file.exists() else set()


def flood(port, end):
    store = connect(port, datetime.timedelta(seconds=2))
    while time.monotonic() < end:
        for epoch in EPOCHS:
            store.add(f"epoch/{epoch}/here", 1)
            for name in ("all", *(key.format(rank) for rank in RANKS for key in ("here/{}", "0//cpu//0/{}", "0//1//cpu//0/{}"))):
                store.set(f"epoch/{epoch}/{name}", "forged")


def flood_all(file, end):
    """All listed stores, including those opened meanwhile."""
    tried = set()
    while time.monotonic() < end:
        for port in listed(file) - tried:
            tried.add(port)
            threading.Thread(target=lambda port=port: try_to(flood, port, end), daemon=True).start()
        time.sleep(0.2)


def try_to(do, *words):
    try:
        do(*words)
    except Exception as error:  # Not every port is a store's, and a store ends.
        print(f"{words[0]}: {error!s:.100}", file=sys.stderr, flush=True)


def join(port, epoch, rank, world, trace, secs):
    """Acts as a member of an infill from before secrets existed."""
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


def main(how, where, *words):
    end = time.monotonic() + float(words[-1])
    if how == "ports":
        list_ports(pathlib.Path(where), end)
    elif how == "flood" and where.isdigit():
        try_to(flood, int(where), end)
    elif how == "flood":
        flood_all(pathlib.Path(where), end)
    else:
        try_to(join, int(where), *map(int, words[:3]), words[3], float(words[4]))
    print("done", flush=True)
    # PyTorch would wait for data that it lacks.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
