"""A state without its tensors, as data. Reading it runs no code, even if a stranger has sent it."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

#: A tree of containers, numbers, strings and slots.
Tree = Any

#: Limits: levels of containers, dimensions of a tensor, and bits of a number.
MOST_LEVELS, MOST_DIMENSIONS, MOST_BITS = 100, 64, 4096

#: Devices on which a tensor may be wanted.
DEVICES = ("cpu", "cuda", "xpu", "hpu", "npu", "mps")

#: NumPy types that hold no Python objects.
_NUMPY_TYPE = re.compile(r"[<>|=][biufc][0-9]{1,2}")

#: Types that JSON has and distinguishes.
_PLAIN = (type(None), bool, int, float, str)


class Inexpressible(TypeError):
    """A value that cannot be handed over. Names the value and its type."""


class Malformed(ValueError):
    """Bytes that are not a skeleton. Says what was expected."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """Stands for a tensor."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    device: str
    #: Distances of neighbours in memory, in elements. None: those of a contiguous tensor.
    strides: Optional[Tuple[int, ...]] = None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Slot:
        """The slot of a tensor. Its memory layout is kept, unless that has gaps or overlaps."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        is_special = tensor.numel() > 0 and strides != _contiguous(shape) and _is_dense(shape, strides)
        return cls(shape, tensor.dtype, tensor.device.type, strides if is_special else None)

    def empty(self, device: torch.device) -> torch.Tensor:
        """A tensor for it."""
        strides = _contiguous(self.shape) if self.strides is None else self.strides
        return torch.empty_strided(self.shape, strides, dtype=self.dtype, device=device)

    def bytes(self) -> int:
        """The bytes of its tensor."""
        count = int(torch.empty(0, dtype=self.dtype).element_size())
        for size in self.shape:
            count *= size
        return count


@dataclasses.dataclass(frozen=True)
class Same:
    """Stands for a tensor that has a slot already: the one with this number, from 0, as in tied weights."""

    number: int


def _contiguous(shape: Sequence[int]) -> Tuple[int, ...]:
    strides: List[int] = []
    distance = 1
    for size in reversed(shape):
        strides.append(distance)
        distance *= max(size, 1)
    return tuple(reversed(strides))


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a piece of memory exactly once. Strides of dimensions of one element say nothing."""
    distance = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape) if size != 1):
        if stride != distance:
            return False
        distance *= size
    return True


def dump(tree: Tree) -> bytes:
    """The tree as bytes. Raises Inexpressible."""
    return json.dumps(_encode(tree, "", MOST_LEVELS), separators=(",", ":")).encode()


def load(data: bytes) -> Tree:
    """The tree of bytes that `dump` made. Raises Malformed."""
    try:
        return _decode(json.loads(data), MOST_LEVELS)
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("expected JSON") from None


def _encode(value: Any, name: str, levels: int) -> Any:
    kind = type(value)
    if kind is int and value.bit_length() > MOST_BITS:
        raise Inexpressible(f"{name}: a number of more than {MOST_BITS} bits")
    if kind in _PLAIN:
        return value
    if levels == 0:
        raise Inexpressible(f"{name[:200]}: more than {MOST_LEVELS} levels of containers")
    if kind is list:
        return [_encode(each, f"{name}/{i}", levels - 1) for i, each in enumerate(value)]
    for tag, (wanted, encode) in _WRITERS.items():
        if kind is wanted:
            return {tag: encode(value, name, levels - 1)}
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, (numpy.generic, numpy.ndarray)) and _NUMPY_TYPE.fullmatch(value.dtype.str):
        shape = list(value.shape) if isinstance(value, numpy.ndarray) else None
        return {"numpy": [value.dtype.str, shape, _text(value.tobytes())]}
    raise Inexpressible(f"{name}: a {kind.__module__}.{kind.__qualname__} cannot be handed over to other processes")


def _encode_all(values: Any, name: str, levels: int) -> List[Any]:
    return [_encode(each, f"{name}/{i}", levels) for i, each in enumerate(values)]


def _encode_items(values: Dict[Any, Any], name: str, levels: int) -> List[Any]:
    def items() -> Any:
        for key, value in values.items():
            place = f"{name}/{key!s:.100}" if name else f"{key!s:.100}"
            yield [_encode(key, f"{place} (key)", levels), _encode(value, place, levels)]

    return list(items())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


#: By tag: the type, and how the content of a value is read.
_WRITERS: Dict[str, Tuple[type, Callable[[Any, str, int], Any]]] = {
    "dict": (dict, _encode_items),
    "tuple": (tuple, _encode_all),
    "set": (set, _encode_all),
    "size": (torch.Size, _encode_all),
    "bytes": (bytes, lambda value, *_: _text(value)),
    "complex": (complex, lambda value, *_: [value.real, value.imag]),
    "dtype": (torch.dtype, lambda value, *_: _name(value)),
    "tensor": (Slot, lambda value, *_: [list(value.shape), _name(value.dtype), value.device, value.strides]),
    "same": (Same, lambda value, *_: value.number),
}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).partition(".")[2]


def _decode(value: Any, levels: int) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if levels == 0:
        raise Malformed(f"expected at most {MOST_LEVELS} levels of containers")
    if isinstance(value, list):
        return [_decode(each, levels - 1) for each in value]
    if len(value) != 1:
        raise Malformed("expected an object with one tag")
    ((tag, content),) = value.items()
    read = _READERS.get(tag)
    if read is None:
        raise Malformed(f"unknown tag {tag!r:.50}")
    return read(content, levels - 1)


def _list(content: Any, length: int = -1) -> List[Any]:
    if not isinstance(content, list) or length not in (-1, len(content)):
        raise Malformed("expected a list" if length < 0 else f"expected a list of {length} elements")
    return content


def _decode_items(content: Any, levels: int) -> Dict[Any, Any]:
    pairs = [_list(pair, 2) for pair in _list(content)]
    return {_hashable(_decode(key, levels)): _decode(value, levels) for key, value in pairs}


def _decode_all(content: Any, levels: int) -> List[Any]:
    return [_decode(each, levels) for each in _list(content)]


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise Malformed("expected a valid key") from None
    return value


def _decode_bytes(content: Any, _levels: int = 0) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Malformed("expected base64") from None


def _decode_complex(content: Any, _levels: int) -> complex:
    real, imaginary = _list(content, 2)
    if type(real) is not float or type(imaginary) is not float:
        raise Malformed("expected two numbers")
    return complex(real, imaginary)


def _decode_dtype(content: Any, _levels: int = 0) -> torch.dtype:
    dtype = getattr(torch, content, None) if isinstance(content, str) and content.isidentifier() else None
    if not isinstance(dtype, torch.dtype):
        raise Malformed("expected a type of tensors")
    return dtype


def _decode_shape(content: Any) -> Tuple[int, ...]:
    shape = _list(content)
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise Malformed("expected a shape")
    return tuple(shape)


def _decode_slot(content: Any, _levels: int) -> Slot:
    sizes, dtype, device, strides = _list(content, 4)
    if device not in DEVICES:
        raise Malformed("expected a device")
    shape = _decode_shape(sizes)
    if strides is not None:
        strides = _decode_shape(strides)
        if len(strides) != len(shape) or not _is_dense(shape, strides):
            raise Malformed("expected strides without gaps")
    return Slot(shape, _decode_dtype(dtype), device, strides)


def _decode_same(content: Any, _levels: int) -> Same:
    if type(content) is not int or content < 0:
        raise Malformed("expected a number of a tensor")
    return Same(content)


def _decode_numpy(content: Any, _levels: int) -> Any:
    dtype, shape, data = _list(content, 3)
    if not isinstance(dtype, str) or not _NUMPY_TYPE.fullmatch(dtype):
        raise Malformed("expected a type of NumPy's numbers")
    try:
        import numpy  # type: ignore[import-not-found, unused-ignore]

        flat = numpy.frombuffer(_decode_bytes(data), dtype=dtype)
        return flat[0] if shape is None else flat.reshape(_decode_shape(shape)).copy()
    except (ImportError, ValueError, TypeError, IndexError) as error:
        raise Malformed(f"expected numbers of NumPy: {error}") from None


_READERS: Dict[str, Callable[[Any, int], Any]] = {
    "dict": _decode_items,
    "tuple": lambda content, levels: tuple(_decode_all(content, levels)),
    "set": lambda content, levels: {_hashable(each) for each in _decode_all(content, levels)},
    "size": lambda content, _: torch.Size(_decode_shape(content)),
    "bytes": _decode_bytes,
    "complex": _decode_complex,
    "dtype": _decode_dtype,
    "tensor": _decode_slot,
    "same": _decode_same,
    "numpy": _decode_numpy,
}
