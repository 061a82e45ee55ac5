"""Remote files as file objects that fetch large ranges, not small ones."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from heterps.storage.patience import Ahead

BLOCK_BYTES = 8 << 20
_GAP_BYTES = 1 << 20

ReadRange = Callable[[int, int], bytes]


class Extent(NamedTuple):
    """Bytes ``start`` up to ``stop`` of a file."""

    start: int
    stop: int


def merged(extents: Iterable[Extent], gap_bytes: int = _GAP_BYTES) -> list[Extent]:
    """Few large extents in place of many: what lies close together is fetched in one go."""
    result: list[Extent] = []
    for start, stop in sorted(extents):
        if result and start <= result[-1].stop + gap_bytes:
            result[-1] = Extent(result[-1].start, max(stop, result[-1].stop))
        else:
            result.append(Extent(start, stop))
    return result


class _Positioned(io.RawIOBase):
    """A file of known size with a place in it."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def _wanted(self, size: int | None) -> Extent:
        left = max(0, self._size - self._at)
        taken = left if size is None or size < 0 else min(size, left)
        return Extent(self._at, self._at + taken)


class FetchedFile(_Positioned):
    """A file of which parts are in memory; the rest is fetched when it is asked for."""

    def __init__(
        self, size_bytes: int, parts: Sequence[tuple[Extent, bytes]], fetch: ReadRange
    ) -> None:
        super().__init__(size_bytes)
        self._parts = parts
        self._fetch = fetch

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> memoryview:
        """Without a copy: Arrow asks for this where there is one."""
        start, stop = self._wanted(size)
        self._at = stop
        for held, content in self._parts:
            if held.start <= start and stop <= held.stop:
                return memoryview(content)[start - held.start : stop - held.start]
        return memoryview(self._fetch(start, stop) if start < stop else b"")


class RemoteStream(_Positioned):
    """A file that is read from front to back, mostly: in blocks, the next one fetched ahead once
    two have followed each other.
    """

    def __init__(self, fetch: ReadRange, size_bytes: int, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(size_bytes)
        self._fetch = fetch
        self._block_bytes = block_bytes
        self._number, self._block = -1, b""
        self._ahead: tuple[int, Ahead[bytes]] | None = None

    def read(self, size: int | None = -1) -> bytes:
        start, stop = self._wanted(size)
        parts = []
        while start < stop:
            number, within = divmod(start, self._block_bytes)
            part = self._block_of(number)[within : within + stop - start]
            parts.append(part)
            start += len(part)
        self._at = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block_of(self, number: int) -> bytes:
        if number == self._number:
            return self._block
        follows = number == self._number + 1 and number > 0
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == number:
            self._block = ahead[1].result()
        else:
            self._block = self._read_block(number)
        self._number = number
        if follows and (number + 1) * self._block_bytes < self._size:
            self._ahead = (number + 1, Ahead(lambda: self._read_block(number + 1)))
        return self._block

    def _read_block(self, number: int) -> bytes:
        start = number * self._block_bytes
        return self._fetch(start, min(start + self._block_bytes, self._size))
