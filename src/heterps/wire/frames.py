"""A message: one header in msgpack, its signature, then the raw buffers.

The header says everything about the buffers, so that they need no copy and no parsing. Whatever
comes in is checked against limits, and anything wrong is a WireError of one line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from heterps.errors import WireError

PROTOCOL = 1
MAX_HEADER_BYTES = 1 << 16
MAX_BUFFERS = 16
MAX_BUFFER_BYTES = 1 << 28
MAX_DEPTH = 6
MAX_DIMENSIONS = 8
_LARGEST_INT = 1 << 62
_INLINE = 0

# Raw bfloat16 travels in numpy as uint16, since numpy has no such type.
DTYPES: dict[str, np.dtype[Any]] = {
    "u1": np.dtype(np.uint8),
    "u2": np.dtype(np.uint16),
    "u4": np.dtype(np.uint32),
    "u8": np.dtype(np.uint64),
    "i4": np.dtype(np.int32),
    "i8": np.dtype(np.int64),
    "f2": np.dtype(np.float16),
    "f4": np.dtype(np.float32),
    "f8": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "bf16"}


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array, and where it travels: behind the header, or at a place in a segment."""

    dtype: str
    shape: tuple[int, ...]
    array: NDArray[Any] | None
    segment: int = _INLINE
    offset: int = 0

    @property
    def inline(self) -> bool:
        return self.segment == _INLINE

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Header:
    generation: int
    counter: int
    verb: str
    fields: Mapping[str, Any]
    buffers: tuple[Buffer, ...]


def as_buffer(array: NDArray[Any], dtype: str | None = None) -> Buffer:
    """An array that travels behind the header; ``dtype`` tells bfloat16 from uint16."""
    name = dtype or _NAMES.get(array.dtype)
    if name is None or DTYPES[name] != array.dtype or not array.flags.c_contiguous:
        raise WireError(
            f"an array of {array.dtype} cannot be sent; expected contiguous rows of "
            f"{', '.join(DTYPES)}"
        )
    return Buffer(name, array.shape, array)


def encode_header(header: Header) -> bytes:
    """Raises WireError for what the other side would not read."""
    _check_sizes(header)
    buffers = [[b.dtype, b.shape, b.segment, b.offset] for b in header.buffers]
    values = [PROTOCOL, header.generation, header.counter, header.verb, header.fields, buffers]
    try:
        raw: bytes = msgpack.packb(values, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"fields of '{header.verb}' cannot be sent: {error}") from None
    if len(raw) > MAX_HEADER_BYTES:
        raise WireError(f"a header of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are sent")
    return raw


def payload(buffers: Sequence[Buffer]) -> list[memoryview]:
    """The frames behind the header."""
    return [_bytes_of(b.array) for b in buffers if b.inline and b.array is not None]


def decode_header(raw: bytes | memoryview) -> Header:
    """Raises WireError; trusts nothing."""
    check_header_size(raw)
    match unpack_values(raw):
        case (int(protocol), int(generation), int(counter), str(verb), dict(fields), tuple(rest)):
            pass
        case _:
            raise WireError("a header is a list of six values of known types")
    if protocol != PROTOCOL:
        raise WireError(f"protocol {protocol}; this side speaks {PROTOCOL}")
    if not (0 <= generation < _LARGEST_INT and 0 <= counter < _LARGEST_INT):
        raise WireError("generation and counter are at least 0")
    if len(rest) > MAX_BUFFERS:
        raise WireError(f"{len(rest)} buffers; at most {MAX_BUFFERS} are read")
    _check_fields(fields)
    return Header(generation, counter, verb, fields, tuple(_decode_buffer(b) for b in rest))


def check_header_size(raw: bytes | memoryview) -> None:
    if len(raw) > MAX_HEADER_BYTES:
        raise WireError(f"a header of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are read")


def attach_payload(header: Header, frames: Sequence[memoryview]) -> Header:
    """The header with its inline buffers as arrays over the frames, without a copy."""
    inline = [buffer for buffer in header.buffers if buffer.inline]
    if len(inline) != len(frames):
        raise WireError(f"{len(frames)} buffers came, the header names {len(inline)}")
    left = iter(frames)
    buffers = tuple(_over(b, next(left)) if b.inline else b for b in header.buffers)
    return Header(header.generation, header.counter, header.verb, header.fields, buffers)


def _check_sizes(header: Header) -> None:
    sizes = [b.size_bytes for b in header.buffers]
    behind = sum(b.size_bytes for b in header.buffers if b.inline)
    most = max(behind, *sizes, 0)
    if most > MAX_BUFFER_BYTES:
        limit = f"at most {MAX_BUFFER_BYTES} are sent at once"
        raise WireError(f"'{header.verb}' with arrays of {most} bytes; {limit}")


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _over(buffer: Buffer, frame: memoryview) -> Buffer:
    if frame.nbytes != buffer.size_bytes:
        raise WireError(f"a buffer of {frame.nbytes} bytes, the header says {buffer.size_bytes}")
    array = np.frombuffer(frame, DTYPES[buffer.dtype]).reshape(buffer.shape)
    return Buffer(buffer.dtype, buffer.shape, array)


def _decode_buffer(value: Any) -> Buffer:
    match value:
        case (str(dtype), tuple(shape), int(segment), int(offset)) if dtype in DTYPES:
            pass
        case _:
            raise WireError("a buffer is a known dtype, a shape, a segment and an offset")
    if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError("a shape is a few numbers from 0 on")
    if not (0 <= segment < _LARGEST_INT and 0 <= offset < _LARGEST_INT):
        raise WireError("segment and offset are at least 0")
    buffer = Buffer(dtype, shape, None, segment, offset)
    if max(shape, default=0) > MAX_BUFFER_BYTES or buffer.size_bytes > MAX_BUFFER_BYTES:
        raise WireError(f"a buffer of {list(shape)}; at most {MAX_BUFFER_BYTES} bytes are read")
    return buffer


def unpack_values(raw: bytes | memoryview) -> Any:
    """Plain values from msgpack; raises WireError."""
    try:
        return msgpack.unpackb(
            raw, use_list=False, strict_map_key=True, max_ext_len=0, ext_hook=_no_extension
        )
    # msgpack's own errors are ValueError or UnpackException, and some inputs find other types.
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"a header that is no msgpack: {type(error).__name__}") from None


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} of {len(data)} bytes")


def _check_fields(value: Any, depth: int = 1) -> None:
    if depth > MAX_DEPTH:
        raise WireError(f"fields nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise WireError("the names of fields are text")
        for item in value.values():
            _check_fields(item, depth + 1)
    elif isinstance(value, tuple):
        for item in value:
            _check_fields(item, depth + 1)
