"""A request as the server reads it: typed fields, arrays wherever they travelled, an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heterps.errors import InputError
from heterps.ps.peers import Peer
from heterps.ps.precision import WIRE_DTYPES, decode_rows, encode_rows
from heterps.wire.frames import DTYPES, MAX_BUFFER_BYTES, Buffer, Header, as_buffer

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
_REQUIRED = object()


@dataclass
class Answer:
    fields: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()


@dataclass(eq=False)
class Request:
    """``route`` is where the answer goes, ``expires`` (monotonic) when nobody waits for it."""

    peer: Peer
    route: bytes
    header: Header
    expires: float

    @property
    def verb(self) -> str:
        return self.header.verb

    @property
    def number(self) -> int:
        """By which the client knows the answer; -1 if it gave none."""
        call = self.header.fields.get("call")
        return call if type(call) is int else -1

    def check_number(self) -> None:
        self.integer("call")

    @property
    def sequence(self) -> int:
        return int(self.integer("sequence"))

    def text(self, name: str) -> str:
        value = self.header.fields.get(name)
        if not isinstance(value, str):
            raise InputError(name, f"expected text, got {value!r:.50}")
        return value

    def integer(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self.header.fields.get(name)
        if value is None and default is not _REQUIRED:
            return default
        if type(value) is not int:
            raise InputError(name, f"expected a whole number, got {value!r:.50}")
        return value

    def rate(self, name: str = "lr") -> float | None:
        value = self.header.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(name, f"expected a finite number, got {value!r:.50}")
        return float(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.header.fields.get(name)
        if not isinstance(value, dict):
            raise InputError(name, f"expected named values, got {value!r:.50}")
        return value

    def ids(self) -> Ids:
        buffer = self._buffer(0, "ids")
        if buffer.dtype != "i8" or len(buffer.shape) != 1:
            raise InputError("ids", f"expected a vector of i8, got {buffer.dtype} {buffer.shape}")
        return self.peer.array(buffer)

    def octets(self) -> NDArray[np.uint8]:
        buffer = self._buffer(0, "octets")
        if buffer.dtype != "u1" or len(buffer.shape) != 1:
            raise InputError("octets", f"expected bytes, got {buffer.dtype} {buffer.shape}")
        return self.peer.array(buffer)

    def floats(self, index: int, name: str, shape: tuple[int, ...] | None = None) -> Floats:
        """Rows or gradients as float32, decoded if they travelled in another precision."""
        buffer = self._buffer(index, name)
        if buffer.dtype not in WIRE_DTYPES or (shape is not None and buffer.shape != shape):
            expected = f"floats {list(shape)}" if shape is not None else "floats"
            raise InputError(name, f"expected {expected}, got {buffer.dtype} {list(buffer.shape)}")
        return decode_rows(self.peer.array(buffer), buffer.dtype)

    def result(self, shape: tuple[int, ...]) -> Result:
        """Where the rows of the answer go: a place in a segment if the client gave one."""
        dtype = self.header.fields.get("dtype", "f4")
        if dtype not in WIRE_DTYPES:
            known = ", ".join(WIRE_DTYPES)
            raise InputError("dtype", f"expected one of {known}, got {dtype!r:.50}")
        place = Buffer(dtype, shape, None, self.integer("segment", 0), self.integer("offset", 0))
        if place.size_bytes > MAX_BUFFER_BYTES or place.offset < 0:
            raise InputError("ids", f"rows of {place.size_bytes} bytes in one answer; ask for less")
        if place.inline:
            return Result(as_buffer(np.empty(shape, DTYPES[dtype]), dtype))
        array = self.peer.array(place)
        return Result(Buffer(dtype, shape, array, place.segment, place.offset))

    def _buffer(self, index: int, name: str) -> Buffer:
        if index >= len(self.header.buffers):
            raise InputError(name, "missing")
        return self.header.buffers[index]


class Result:
    """An array to fill with float32 rows, and the same as the buffer that is sent."""

    def __init__(self, buffer: Buffer) -> None:
        assert buffer.array is not None
        self.buffer = buffer
        self._direct = buffer.dtype == "f4"
        self.rows: Floats = buffer.array if self._direct else np.empty(buffer.shape, np.float32)

    def finish(self) -> Answer:
        if not self._direct:
            assert self.buffer.array is not None
            encode_rows(self.rows, self.buffer.dtype, self.buffer.array)
        return Answer(buffers=(self.buffer,))
