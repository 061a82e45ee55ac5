"""What a message says of its tensors, and how they lie in its buffers.

A message has few buffers of plain bytes: small tensors share one, and where there is shared memory
all do. So a batch may have many names, and costs the same whatever their number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import torch
from torch import Tensor

from heterps.errors import WireError
from heterps.wire.frames import MAX_BUFFER_BYTES, MAX_DIMENSIONS, unpack_values
from heterps.wire.segments import ALIGNMENT

DTYPES: dict[str, torch.dtype] = {
    "f4": torch.float32,
    "f8": torch.float64,
    "f2": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int64,
    "i4": torch.int32,
    "i2": torch.int16,
    "i1": torch.int8,
    "u1": torch.uint8,
    "bool": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_NARROWED = ("f4", "f8")
MAX_NAME = 200
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of type ``dtype`` that travels as ``wire``, from ``offset`` on in a buffer."""

    name: str
    dtype: str
    wire: str
    shape: tuple[int, ...]
    part: int
    offset: int

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.wire].itemsize

    def fields(self) -> list[Any]:
        return [self.name, self.dtype, self.wire, self.shape, self.part, self.offset]


@dataclass(frozen=True)
class Layout:
    """Where the tensors of a message go: those in ``alone`` into a buffer each, the others
    together into the first, which has ``packed_bytes``. ``encoded`` is what the message says.
    """

    entries: tuple[Entry, ...]
    alone: tuple[str, ...]
    packed_bytes: int
    encoded: bytes

    def pack(self, tensors: Mapping[str, Tensor], memory: Tensor) -> None:
        """Copies the tensors that share a buffer into it, narrowed on the way."""
        for entry in self.entries:
            if not entry.part:
                _copy(tensors[entry.name].detach(), _at(memory, entry))

    def large(self, at_least_bytes: int, most: int) -> tuple[str, ...]:
        """The names whose tensors are worth a buffer of their own, that goes out without a copy."""
        kept = (entry for entry in self.entries if entry.wire == entry.dtype)
        return tuple(e.name for e in kept if e.size_bytes >= at_least_bytes)[:most]


def lay_out(
    tensors: Mapping[str, Tensor],
    *,
    narrow: bool = False,
    exact: Collection[str] = (),
    alone: Sequence[str] = (),
) -> Layout:
    """With ``narrow`` float32 and float64 travel as bfloat16, but for the names in ``exact``.
    Raises WireError for what cannot be sent."""
    parts = {name: part for part, name in enumerate(alone, 1)}
    entries = []
    end = 0
    for name, tensor in tensors.items():
        dtype = _name_of(name, tensor)
        wire = _travels_as(dtype, narrow=narrow and name not in exact)
        shape, part = tuple(tensor.shape), parts.get(name, 0)
        entry = Entry(name, dtype, wire, shape, part, 0 if part else end)
        entries.append(entry)
        if not part:
            end = entry.offset + _aligned(entry.size_bytes)
    largest = max(end, *(e.size_bytes for e in entries), 0)
    if largest > MAX_BUFFER_BYTES:
        problem = f"a micro-batch of {largest} bytes; at most {MAX_BUFFER_BYTES} are sent"
        raise WireError(f"{problem}, so take more micro-batches of fewer samples")
    encoded: bytes = msgpack.packb([entry.fields() for entry in entries], use_bin_type=True)
    return Layout(tuple(entries), tuple(alone), end, encoded)


def wire_bytes(
    tensors: Mapping[str, Tensor], *, narrow: bool = False, exact: Collection[str] = ()
) -> int:
    """What ``lay_out`` makes of them, without what aligns them."""
    found = 0
    for name, tensor in tensors.items():
        wire = _travels_as(_name_of(name, tensor), narrow=narrow and name not in exact)
        found += tensor.numel() * DTYPES[wire].itemsize
    return found


def _travels_as(dtype: str, *, narrow: bool) -> str:
    return "bf16" if narrow and dtype in _NARROWED else dtype


def _copy(source: Tensor, target: Tensor) -> None:
    """Bytes, which are what control messages are, without torch: it would take helping threads for
    them, and once more threads than one have such, those of the model sleep between any two of its
    operations."""
    if source.dtype == torch.uint8:
        target.numpy()[...] = source.numpy()
    else:
        target.copy_(source)


class Layouts:
    """Remembers layouts, as the micro-batches of a run have few."""

    def __init__(self) -> None:
        self._sent: dict[object, Layout] = {}
        self._read: dict[bytes, list[Entry]] = {}

    def of(
        self,
        tensors: Mapping[str, Tensor],
        *,
        narrow: bool = False,
        exact: Collection[str] = (),
        alone: Sequence[str] = (),
    ) -> Layout:
        kinds = tuple((name, t.dtype, t.shape) for name, t in tensors.items())
        key = (kinds, narrow, tuple(exact), tuple(alone))
        found = self._sent.get(key)
        if found is None:
            found = lay_out(tensors, narrow=narrow, exact=exact, alone=alone)
            _remember(self._sent, key, found)
        return found

    def read(self, encoded: bytes) -> list[Entry]:
        """Raises WireError."""
        found = self._read.get(encoded)
        if found is None:
            found = read_entries(encoded)
            _remember(self._read, encoded, found)
        return found


def bytes_of(tensor: Tensor) -> Tensor:
    """A tensor's memory, without a copy if it is contiguous and not on a device."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def read_entries(encoded: bytes) -> list[Entry]:
    """Raises WireError; whether memory has the sizes, ``unpack`` checks."""
    value = unpack_values(encoded)
    if not isinstance(value, tuple):
        raise WireError("tensors are a list")
    entries = [_entry(item) for item in value]
    if len({entry.name for entry in entries}) != len(entries):
        raise WireError("a name came twice in one message")
    return entries


def unpack(entries: Sequence[Entry], parts: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors, over the memory of their buffers unless they were narrowed."""
    found = {}
    for entry in entries:
        if entry.part >= len(parts):
            raise WireError(f"'{entry.name}' lies in buffer {entry.part} of {len(parts)}")
        memory = parts[entry.part]
        end = entry.offset + entry.size_bytes
        if entry.offset % ALIGNMENT or end > memory.numel():
            raise WireError(f"'{entry.name}' ends at byte {end} of {memory.numel()}")
        found[entry.name] = _at(memory, entry).to(DTYPES[entry.dtype])
    return found


def _at(memory: Tensor, entry: Entry) -> Tensor:
    piece = memory[entry.offset : entry.offset + entry.size_bytes]
    return piece.view(DTYPES[entry.wire]).view(entry.shape)


def _name_of(name: str, tensor: Tensor) -> str:
    found = _NAMES.get(tensor.dtype)
    if found is None:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _NAMES)
        raise WireError(f"'{name}' is of {tensor.dtype}, which cannot be sent; known: {known}")
    if tensor.dim() > MAX_DIMENSIONS:
        raise WireError(f"'{name}' has {tensor.dim()} dimensions; at most {MAX_DIMENSIONS}")
    if len(name) > MAX_NAME:
        raise WireError(f"a name of {len(name)} letters; at most {MAX_NAME} are sent")
    return found


def _entry(value: Any) -> Entry:
    match value:
        case (str(name), str(dtype), str(wire), tuple(shape), int(part), int(offset)) if (
            dtype in DTYPES and (wire == dtype or (wire == "bf16" and dtype in _NARROWED))
        ):
            pass
        case _:
            raise WireError("a tensor is a name, two known types, a shape, a buffer and an offset")
    if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError("a shape is a few numbers from 0 on")
    if len(name) > MAX_NAME or part < 0 or offset < 0 or max(shape, default=0) > MAX_BUFFER_BYTES:
        raise WireError(f"'{name[:MAX_NAME]}': a number or a name out of bounds")
    return Entry(name, dtype, wire, shape, part, offset)


def _remember(known: dict[Any, Any], key: object, value: object) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
