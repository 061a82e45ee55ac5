"""The shared memory of a connection: what is lent to the peer, and what is borrowed from it.

Who sends owns the segments. A piece goes out with a message, the receiver's tensors lie in it
without a copy, and when the last of them is gone the receiver says so. A segment is used once the
peer has said that it opened it: until then, and where it cannot, messages carry their bytes.
"""

from __future__ import annotations

import weakref
from collections import deque
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from heterps.errors import WireError
from heterps.wire.frames import Buffer
from heterps.wire.segments import MAX_SEGMENT_BYTES, Arena, Segment

MAX_SEGMENTS = 16
_FIRST_BYTES = 1 << 20
_ROOM_FOR = 4
_TRY_AGAIN_AFTER = 64
_SAID_AT_ONCE = 256


class Piece(NamedTuple):
    segment: int
    offset: int


class Lender:
    """The sender's side. Segments grow with what is under way; where the system has no memory for
    them, what is there is used and the rest travels behind its header.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self._arenas: dict[int, Arena] = {}
        self._opened: set[int] = set()
        self._lent: dict[Piece, Buffer] = {}
        self._unknown: list[Segment] = []
        self._last_number = 0
        self._last_bytes = _FIRST_BYTES // 2
        self._wait = 0

    @property
    def size_bytes(self) -> int:
        return sum(arena.segment.size_bytes for arena in self._arenas.values())

    def take(self, size_bytes: int) -> Buffer | None:
        """A piece of plain bytes, or None when there is none now."""
        if not self.enabled:
            return None
        newest = max(self._opened, default=0)
        buffer = self._arenas[newest].take("u1", (size_bytes,)) if newest else None
        if buffer is None:
            self._grow(size_bytes)
        else:
            self._lent[Piece(buffer.segment, buffer.offset)] = buffer
        return buffer

    def give_back(self, piece: Piece) -> None:
        """Raises WireError for what is not lent."""
        buffer = self._lent.pop(piece, None)
        if buffer is None:
            raise WireError(f"gave back what it did not have: {piece}")
        self._arenas[piece.segment].give_back(buffer)

    def new_segments(self) -> list[Segment]:
        """Those that the peer has yet to be told of, each once."""
        unknown, self._unknown = self._unknown, []
        return unknown

    def opened(self, number: int, ok: bool) -> None:
        """The peer has opened a segment, or cannot."""
        if number not in self._arenas or number in self._opened:
            raise WireError(f"speaks of segment {number}, which was not announced")
        if ok:
            self._opened.add(number)
        else:
            self._arenas.pop(number).segment.unlink()
            self.enabled = False

    def superseded(self) -> list[int]:
        """Numbers of the segments that nobody needs any more, each once."""
        gone = [n for n in self._opened if n < max(self._opened) and self._arenas[n].empty]
        for number in gone:
            del self._arenas[number]
            self._opened.remove(number)
        return gone

    def close(self) -> None:
        self.enabled = False
        for arena in self._arenas.values():
            arena.segment.unlink()

    def _grow(self, needed_bytes: int) -> None:
        """One more segment, unless one is on its way or there was no memory for it just now."""
        size = max(2 * self._last_bytes, 1 << (_ROOM_FOR * needed_bytes - 1).bit_length())
        on_its_way = max(self._arenas, default=0) > max(self._opened, default=0)
        self._wait -= 1
        if on_its_way or self._wait > 0 or size > MAX_SEGMENT_BYTES:
            return
        try:
            segment = Segment.create(self._last_number + 1, size)
        except OSError:
            self._wait = _TRY_AGAIN_AFTER
            return
        self._last_number, self._last_bytes = segment.number, size
        self._arenas[segment.number] = Arena(segment)
        self._unknown.append(segment)


class Borrower:
    """The receiver's side."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        # Filled by whichever thread drops the last tensor.
        self._done: deque[tuple[Piece, int]] = deque()

    def open(self, number: int, path: Path, size_bytes: int) -> bool:
        """Whether it worked: a peer on another host, say, has nothing to share."""
        if len(self._segments) >= MAX_SEGMENTS or number in self._segments:
            return False
        try:
            self._segments[number] = Segment.open(number, path, size_bytes)
        except WireError:
            return False
        return True

    def drop(self, number: int) -> None:
        self._segments.pop(number, None)

    def memory(self, buffer: Buffer) -> Tensor:
        """The buffer's contents, given back with the last tensor over them. Tensors keep the array
        that they were made of, while an array made of another keeps only the segment.
        """
        if buffer.segment not in self._segments:
            raise WireError(f"no segment {buffer.segment}")
        array = self._segments[buffer.segment].array(buffer)
        piece = Piece(buffer.segment, buffer.offset)
        weakref.finalize(array, self._done.append, (piece, array.nbytes)).atexit = False
        return torch.from_numpy(array)

    @property
    def owes(self) -> bool:
        """Whether so much is done with that it should be said without waiting for a message."""
        if not self._done:
            return False
        done = list(self._done)
        if len(done) >= _ROOM_FOR:
            return True
        return any(_ROOM_FOR * size >= self._size_of(piece.segment) for piece, size in done)

    def done_with(self) -> list[Piece]:
        """What goes back to the peer, each once."""
        found: list[Piece] = []
        while self._done and len(found) < _SAID_AT_ONCE:
            found.append(self._done.popleft()[0])
        return found

    def _size_of(self, number: int) -> int:
        segment = self._segments.get(number)
        return segment.size_bytes if segment else 0
