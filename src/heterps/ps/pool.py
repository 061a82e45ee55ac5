"""A client's side of shared memory with one server."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heterps.ps.precision import encode_rows
from heterps.wire.frames import DTYPES, Buffer, as_buffer
from heterps.wire.segments import MAX_SEGMENT_BYTES, Arena, Segment

Floats = NDArray[np.float32]
_FIRST_BYTES = 1 << 22


class Pool:
    """The segments of one connection. Pieces are taken by the callers' threads, from the newest
    segment; when it has no room, a larger one follows and the older ones go when they are empty.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self._lock = threading.Lock()
        self._arenas: list[Arena] = []
        self._unknown: list[Segment] = []
        self._last_number = 0
        # Pieces whose arrays are gone. That is noticed in any thread, also in one that has the
        # lock just now, so they wait here until it is taken the next time.
        self._left: deque[Buffer] = deque()

    def take(self, dtype: str, shape: tuple[int, ...]) -> Buffer | None:
        """A piece for an array, or None: it then travels behind the header."""
        with self._lock:
            if not self.enabled:
                return None
            self._take_back()
            piece = self._arenas[-1].take(dtype, shape) if self._arenas else None
            if piece is None and self._grow(Buffer(dtype, shape, None).size_bytes):
                piece = self._arenas[-1].take(dtype, shape)
            return piece

    def give_back(self, piece: Buffer) -> None:
        self._left.append(piece)
        with self._lock:
            self._take_back()

    def lend(self, piece: Buffer) -> NDArray[Any]:
        """The array of a piece, which comes back by itself once nobody has it or a view of it."""
        assert piece.array is not None
        if not piece.array.size:
            self.give_back(piece)
            return piece.array
        # Views of an array over a memoryview hold that array, not what is below it.
        held = np.frombuffer(piece.array.data, piece.array.dtype)
        weakref.finalize(held, self._left.append, piece).atexit = False
        return held.reshape(piece.shape)

    def new_segments(self) -> list[Segment]:
        """Those that the server has yet to be told of, each once."""
        with self._lock:
            unknown, self._unknown = self._unknown, []
            return unknown

    def superseded(self) -> Iterator[int]:
        """Numbers of the segments that nobody needs any more, each once."""
        with self._lock:
            self._take_back()
            gone = [arena for arena in self._arenas[:-1] if arena.empty]
            self._arenas = [arena for arena in self._arenas if arena not in gone]
        return (arena.segment.number for arena in gone)

    def close(self) -> None:
        """No more pieces; those that are out stay readable."""
        with self._lock:
            self.enabled = False
            for arena in self._arenas:
                arena.segment.unlink()

    def _take_back(self) -> None:
        while self._left:
            piece = self._left.popleft()
            for arena in self._arenas:
                if arena.segment.number == piece.segment:
                    arena.give_back(piece)

    def _grow(self, needed_bytes: int) -> bool:
        last = self._arenas[-1].segment.size_bytes if self._arenas else _FIRST_BYTES // 2
        size = max(2 * last, 1 << (2 * needed_bytes).bit_length())
        if size > MAX_SEGMENT_BYTES:
            return False
        try:
            segment = Segment.create(self._last_number + 1, size)
        except OSError:
            return False
        self._last_number += 1
        self._arenas.append(Arena(segment))
        self._unknown.append(segment)
        return True


def placed(pool: Pool, array: NDArray[Any]) -> Buffer:
    """The array in shared memory if there is room, else as it is."""
    buffer = as_buffer(array)
    piece = pool.take(buffer.dtype, buffer.shape)
    if piece is None:
        return buffer
    assert piece.array is not None
    piece.array[...] = array
    return piece


def encoded(pool: Pool, dtype: str, rows: Floats, *, owned: bool = False) -> Buffer:
    """Rows as they travel, in shared memory if there is room. Memory that is not ``owned`` may
    change before it has gone out, and so is copied.
    """
    piece = pool.take(dtype, rows.shape)
    if piece is None:
        if owned and dtype == "f4":
            return as_buffer(rows)
        piece = as_buffer(np.empty(rows.shape, DTYPES[dtype]), dtype)
    assert piece.array is not None
    encode_rows(rows, dtype, piece.array)
    return piece
