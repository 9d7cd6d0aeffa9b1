"""Measures how long collectives take on the nodes of a job: `python -m infill.collectives > table.csv` on all ranks.

Runs under `infill run`, `srun` or torchrun, with NCCL where there are GPUs, else with gloo. Rank 0 writes a row for
each operation, number of bytes and group of ranks: op, bytes, world, nodes, seconds_median. Bytes are those of the
whole tensor: the tensor of each rank after all-reduce and all-gather, and before reduce-scatter. Point-to-point is
one way, from the first rank of the group to its last.
"""

from __future__ import annotations

import argparse
import csv
import os
import socket
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, TextIO, Tuple

import torch
import torch.distributed as dist

#: Bytes of a tensor's element.
_WIDTH = 4

#: Longest name of a node; longer ones are cut.
NAME_BYTES = 256

#: Most bytes of one tensor. Other programs on the device also need memory.
MOST_BYTES = 1 << 32

_WARM_UP, _FEWEST, _MOST = 2, 5, 50

#: Approximate time to spend on one row, seconds.
_ROW_SECS = 0.5


class Group(NamedTuple):
    """Ranks that work together, and the number of their nodes."""

    ranks: Tuple[int, ...]
    nodes: int


def groups(hosts: Sequence[str]) -> List[Group]:
    """Groups of 2, 4, 8, … and all ranks: the first ranks, and equally many spread over all nodes.

    `hosts`: the host of each rank.
    """
    turn = {host: iter(range(len(hosts))) for host in hosts}
    spread = [rank for _, rank in sorted((next(turn[host]), rank) for rank, host in enumerate(hosts))]
    sizes = sorted({2**i for i in range(1, len(hosts).bit_length()) if 2**i <= len(hosts)} | {len(hosts)} - {1})
    found = dict.fromkeys(tuple(sorted(order[:size])) for size in sizes for order in (range(len(hosts)), spread))
    return [Group(ranks, len({hosts[rank] for rank in ranks})) for ranks in found]


def operations(group: Group, handle: Any, size: int, device: torch.device) -> Dict[str, Callable[[], Any]]:
    """The measured operations on tensors of this many bytes, by name."""
    world = len(group.ranks)
    part = max(1, size // _WIDTH // world)
    whole, mine = torch.zeros(part * world, device=device), torch.zeros(part, device=device)
    first, last = group.ranks[0], group.ranks[-1]

    def there_and_back() -> None:
        rank = dist.get_rank()
        for source, target in ((first, last), (last, first)):
            if rank == source:
                dist.send(whole, target, group=handle)
            elif rank == target:
                dist.recv(whole, source, group=handle)

    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=handle),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, mine, group=handle),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(mine, whole, group=handle),
        "point_to_point": there_and_back,
    }


def measure(call: Callable[[], Any], handle: Any, device: torch.device) -> float:
    """Median of the seconds that a call takes on the slowest rank of the group."""
    warm = [_timed(call, handle, device) for _ in range(_WARM_UP)]
    # All ranks have the same seconds, and so the same number of repetitions.
    repeats = int(min(max(_ROW_SECS / max(warm[-1], 1e-9), _FEWEST), _MOST))
    return statistics.median(_timed(call, handle, device) for _ in range(repeats))


def _timed(call: Callable[[], Any], handle: Any, device: torch.device) -> float:
    dist.barrier(group=handle)
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    slowest = torch.tensor([time.perf_counter() - start], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=handle)
    return float(slowest.item())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rows(group: Group, handle: Any, sizes: Sequence[int], device: torch.device) -> Iterator[Tuple[Any, ...]]:
    """The rows of one group, on each of its ranks."""
    lacking: Dict[str, str] = {}
    for size in sizes:
        for op, call in operations(group, handle, size, device).items():
            if op in lacking:
                continue
            try:
                secs = measure(call, handle, device)
            except (RuntimeError, NotImplementedError) as error:
                # Some versions of gloo lack an operation. All ranks meet that together, before any of them waits.
                lacking[op] = str(error).split("\n", 1)[0]
                print(f"{op} is left out: {lacking[op]}", file=sys.stderr)
                continue
            way = 2 if op == "point_to_point" else 1
            yield op, size, len(group.ranks), group.nodes, f"{secs / way:.9f}"


def _join() -> torch.device:
    """Meets the other ranks, in the way of this rank's launcher."""
    place = os.environ
    if "RANK" not in place and "SLURM_PROCID" in place:
        place.update(
            RANK=place["SLURM_PROCID"], WORLD_SIZE=place["SLURM_NTASKS"], LOCAL_RANK=place.get("SLURM_LOCALID", "0")
        )
        place.setdefault("MASTER_ADDR", place.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"))
        place.setdefault("MASTER_PORT", str(20000 + int(place.get("SLURM_JOB_ID", "0")) % 10000))
    if "RANK" not in place:
        raise SystemExit("infill.collectives: there are no ranks here; start it with infill run, srun or torchrun")
    # Builds without libuv fail when asked for it, which is the default.
    place.setdefault("USE_LIBUV", "0")
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(place.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def _hosts(device: torch.device) -> List[str]:
    """The host of each rank."""
    name = (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
    mine = torch.tensor(list(name), dtype=torch.uint8, device=device)
    names = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(names, mine)
    return [bytes(name.tolist()).rstrip(b"\0").decode(errors="replace") for name in names]


def _write(out: Optional[TextIO], sizes: Sequence[int], device: torch.device) -> None:
    hosts = _hosts(device)
    table = csv.writer(out) if out else None
    if table:
        table.writerow(("op", "bytes", "world", "nodes", "seconds_median"))
    for group in groups(hosts):
        # Rank 0 is in each group: the first ranks, and the spread ones, begin with it.
        handle = dist.new_group(list(group.ranks))
        if dist.get_rank() in group.ranks:
            for row in rows(group, handle, sizes, device):
                if table and out:
                    table.writerow(row)
                    out.flush()
        dist.barrier()


def _bytes(text: str) -> List[int]:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    try:
        sizes = [int(word[:-1]) * units[word[-1]] if word[-1:] in units else int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or not all(_WIDTH <= size <= MOST_BYTES for size in sizes):
        raise argparse.ArgumentTypeError(f"expected numbers of bytes from {_WIDTH} to 4G: 64K,1M,16M")
    return sizes


def main(words: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infill.collectives", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bytes", type=_bytes, default="4K,64K,1M,16M,64M", metavar="B,…", help="sizes of tensors")
    parser.add_argument("--out", metavar="FILE", help="write the table there [default: standard output]")
    given = parser.parse_args(words)
    device = _join()
    if dist.get_rank() != 0:
        _write(None, given.bytes, device)
    elif given.out:
        with open(given.out, "w", newline="", encoding="utf-8") as file:
            _write(file, given.bytes, device)
    else:
        _write(sys.stdout, given.bytes, device)
    sys.stdout.flush()
    if device.type == "cuda":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # All is written. When the other ranks have ended, gloo sometimes waits forever on the rank that hosts the store
    # while it shuts down, on a busy machine. So the process ends without shutting gloo down.
    os._exit(0)
