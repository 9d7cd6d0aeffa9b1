"""Exchanges data between ranks of a group, in ways that can be given up when a rank is lost."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from . import torch_private, works

#: Bytes of one broadcast: enough to be fast, and little beside a model.
BUCKET_BYTES = 32 << 20


class Among:
    """Some ranks. `host` is their group on processors, `device` their group on other devices."""

    def __init__(self, host: Any, device: Any, under_way: works.Works) -> None:
        self._host, self._device, self._works = host, device, under_way

    def average(self, tensor: torch.Tensor) -> Any:
        """Makes `tensor`, on processors, the mean over the ranks. Returns a future of it."""
        host = self._host
        tensor.div_(dist.get_world_size(host))
        return self._works.follow(host, lambda: dist.all_reduce(tensor, group=host, async_op=True))

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Gives `tensor` of rank `source` to the others. Raises RuntimeError if a rank is lost.

        On processors, the rest of the data may still arrive after an error.
        """
        if tensor.device.type == "cpu":
            host = self._host
            self._works.wait(host, lambda: dist.broadcast(tensor, source, group=host, async_op=True))
        else:
            dist.broadcast(tensor, source, group=self._device)

    def broadcast_all(self, tensors: Sequence[torch.Tensor], source: int) -> None:
        """Gives `tensors` of rank `source` to the others and overwrites theirs. Raises RuntimeError if a rank is lost.

        All ranks have equally many tensors, of the same sizes and types.
        """
        gives = dist.get_rank() == source
        with torch.no_grad():
            # Parts of a tensor are views of it only if it is contiguous.
            given = tensors if gives else [tensor.contiguous() for tensor in tensors]
            for bucket in _buckets(given):
                is_whole = len(bucket) == 1 and bucket[0].is_contiguous()
                if is_whole and (gives or bucket[0].device.type != "cpu"):
                    self.broadcast(bucket[0], source)
                elif gives:
                    self.broadcast(torch.cat([tensor.reshape(-1) for tensor in bucket]), source)
                else:
                    # Received beside its destination: if this is given up, the rest may still arrive while the next
                    # source sends.
                    flat = bucket[0].new_empty(sum(tensor.numel() for tensor in bucket))
                    self.broadcast(flat, source)
                    _spread(flat, bucket)
            for tensor, new in zip(tensors, given):
                if new is not tensor:
                    tensor.copy_(new)
        self._await({tensor.device for tensor in tensors if tensor.device.type == "cuda"})

    def end(self) -> None:
        """Returns once all has been exchanged. Raises RuntimeError if a rank is lost.

        If there are two groups on a device, the abort of one may wait for an operation that hangs in the other.
        """
        if self._device not in (self._host, dist.group.WORLD):
            self._works.elsewhere(functools.partial(_shut_down, self._device, dist.group.WORLD))

    def _await(self, devices: Set[torch.device]) -> None:
        """Waits until exchanged data is on the devices. An aborted exchange leaves nonsense there, without an error."""
        for device in devices:
            synchronize(device)
        if devices:
            self._works.check()

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        """Returns the result of `call`, which exchanges data in its own way. Raises RuntimeError if it is given up."""
        return self._works.elsewhere(call)


#: Threads that wait for a device, and give it no work meanwhile.
_resting: Set[int] = set()


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished this thread's work."""
    if device.type == "cuda":
        with _rest():
            torch.cuda.current_stream(device).synchronize()


@contextlib.contextmanager
def _rest() -> Iterator[None]:
    _resting.add(threading.get_ident())
    try:
        yield
    finally:
        _resting.discard(threading.get_ident())


def rests(thread: int) -> bool:
    """Whether the thread gives devices no work now: it waits for one, or is the one that asks."""
    return thread in _resting or thread == threading.get_ident()


def _shut_down(group: Any, _default: Any) -> None:
    """While this runs, the default group cannot end either."""
    torch_private.shut_down(group)


def _spread(flat: torch.Tensor, bucket: List[torch.Tensor]) -> None:
    begin = 0
    for tensor in bucket:
        tensor.copy_(flat[begin : begin + tensor.numel()].view(tensor.shape))
        begin += tensor.numel()


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[List[torch.Tensor]]:
    """Buckets of tensors of one kind, each of at most BUCKET_BYTES. All ranks get the same buckets."""
    kinds: Dict[Tuple[str, str], List[torch.Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            kinds.setdefault((tensor.device.type, str(tensor.dtype)), []).append(tensor)
    for kind in sorted(kinds):
        bucket: List[torch.Tensor] = []
        size = 0
        for tensor in (piece for tensor in kinds[kind] for piece in _pieces(tensor)):
            if bucket and size + tensor.numel() * tensor.element_size() > BUCKET_BYTES:
                yield bucket
                bucket, size = [], 0
            bucket.append(tensor)
            size += tensor.numel() * tensor.element_size()
        if bucket:
            yield bucket


def _pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Cuts a tensor into parts that fit a bucket. Only its size counts, because each rank may have another layout.

    At a receiver the parts are views of the tensor, which is contiguous: data written to them arrives in it.
    """
    most = BUCKET_BYTES // tensor.element_size()
    return [tensor] if tensor.numel() <= most else tensor.reshape(-1).split(most)
