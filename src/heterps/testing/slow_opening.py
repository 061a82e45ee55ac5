"""Workers for which it takes long to find out where the blocks of a text file start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from heterps.data import lines
from heterps.data.lines import Checkpoint, PlainLines
from heterps.runtime.engines.base import ProcessSpec
from heterps.testing.forking import ForkedHandle, ForkEngine


def slow_opening(chunk_bytes: int, pause_s: float) -> Callable[[Path], ForkEngine]:
    """Engines whose workers pause before every chunk of that first pass."""
    return lambda folder: _Slow(folder, chunk_bytes, pause_s)


class _Slow(ForkEngine):
    def __init__(self, folder: Path, chunk_bytes: int, pause_s: float) -> None:
        super().__init__(folder)
        self._pace = (chunk_bytes, pause_s)

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        return self.start_after(spec, _slow_down, *self._pace)


def _slow_down(chunk_bytes: int, pause_s: float) -> None:
    vars(lines)["_CHUNK_BYTES"] = chunk_bytes
    chunks = PlainLines.chunks

    def slowly(
        self: PlainLines, opened: IO[bytes], start: Checkpoint | None
    ) -> Iterator[tuple[Checkpoint, bytes]]:
        for chunk in chunks(self, opened, start):
            if start is None:
                time.sleep(pause_s)
            yield chunk

    vars(lines)["PlainLines"].chunks = slowly
