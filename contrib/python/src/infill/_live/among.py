"""What ranks of a group give each other, so that it can be given up when one of them is lost."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from . import works

#: Bytes of one broadcast: enough to be quick, little beside what a model takes.
BUCKET_BYTES = 32 << 20


class Among:
    """Some ranks: `host` is their group on processors, `device` that on other devices."""

    def __init__(self, host: Any, device: Any, under_way: works.Works) -> None:
        self._host, self._device, self._works = host, device, under_way

    def average(self, tensor: torch.Tensor) -> Any:
        """Makes `tensor`, on processors, the mean over the ranks: a future of it."""
        host = self._host
        tensor.div_(dist.get_world_size(host))
        return self._works.follow(host, lambda: dist.all_reduce(tensor, group=host, async_op=True))

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Gives `tensor` of rank `source` to the others. Raises RuntimeError if one is lost.

        On processors, the rest may still come later then.
        """
        if tensor.device.type == "cpu":
            host = self._host
            self._works.wait(host, lambda: dist.broadcast(tensor, source, group=host, async_op=True))
        else:
            dist.broadcast(tensor, source, group=self._device)

    def broadcast_all(self, tensors: Sequence[torch.Tensor], source: int) -> None:
        """Gives `tensors` of rank `source` to the others, whose are written over. Raises RuntimeError if one is lost.

        All ranks have as many, of the same sizes and types.
        """
        gives = dist.get_rank() == source
        with torch.no_grad():
            # Parts of a tensor are views of it only where it is contiguous.
            given = tensors if gives else [tensor.contiguous() for tensor in tensors]
            for bucket in _buckets(given):
                is_whole = len(bucket) == 1 and bucket[0].is_contiguous()
                if is_whole and (gives or bucket[0].device.type != "cpu"):
                    self.broadcast(bucket[0], source)
                elif gives:
                    self.broadcast(torch.cat([tensor.reshape(-1) for tensor in bucket]), source)
                else:
                    # Not where it belongs: if it is given up, the rest may still come while the next source sends.
                    flat = bucket[0].new_empty(sum(tensor.numel() for tensor in bucket))
                    self.broadcast(flat, source)
                    _spread(flat, bucket)
            for tensor, new in zip(tensors, given):
                if new is not tensor:
                    tensor.copy_(new)
        self._await({tensor.device for tensor in tensors if tensor.device.type == "cuda"})

    def end(self) -> None:
        """Once all has been exchanged. Raises RuntimeError if a rank is lost.

        Of two groups on a device, the abort of one may wait for what hangs in the other.
        """
        if self._device not in (self._host, dist.group.WORLD):
            self._works.elsewhere(functools.partial(_shut_down, self._device, dist.group.WORLD))

    def _await(self, devices: Set[torch.device]) -> None:
        """What was exchanged on devices is there then: what is aborted there is no error, but nonsense."""
        for device in devices:
            synchronize(device)
        if devices:
            self._works.check()

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        """What `call` returns, which exchanges something in a way of its own. Raises RuntimeError if it is given up."""
        return self._works.elsewhere(call)


def synchronize(device: torch.device) -> None:
    """Waits for what the device still computes for this thread."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _shut_down(group: Any, _default: Any) -> None:
    """As long as this goes on, the default group cannot end either."""
    own = getattr(group, "shutdown", None)
    if own is None:
        # PyTorch 2.6
        own = group._get_backend(torch.device("cuda"))._shutdown
    own()


def _spread(flat: torch.Tensor, bucket: List[torch.Tensor]) -> None:
    begin = 0
    for tensor in bucket:
        tensor.copy_(flat[begin : begin + tensor.numel()].view(tensor.shape))
        begin += tensor.numel()


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[List[torch.Tensor]]:
    """Tensors of one kind each, as many as BUCKET_BYTES hold; the same for all ranks."""
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
    """Parts of it that a bucket holds, cut by its size alone: its layout may be another one at each rank.

    A receiver's are views of the tensor, which is contiguous: what is written to them arrives in it.
    """
    most = BUCKET_BYTES // tensor.element_size()
    return [tensor] if tensor.numel() <= most else tensor.reshape(-1).split(most)
