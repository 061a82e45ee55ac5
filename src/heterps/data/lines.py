"""Text files as blocks of lines, each readable without those before it."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heterps.data.source import SourceFile

_CHUNK_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS
_Ends = npt.NDArray[np.int64]


class Checkpoint(NamedTuple):
    """Where reading can start: a position in the file, the text before it, and for compressed
    files the state of the decompressor.
    """

    position: int
    text_bytes: int
    inflate: Any = None


@dataclass(frozen=True)
class Block:
    """``rows`` lines and the empty ones between them, which are none: those from ``first_line``
    (counted from 1) up to ``last_line``, ``stop - start`` bytes of text.
    """

    first_line: int
    last_line: int
    rows: int
    start: int
    stop: int
    checkpoint: Checkpoint


class Lines(ABC):
    """A text file, in chunks from any checkpoint on."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    @abstractmethod
    def chunks(
        self, opened: IO[bytes], start: Checkpoint | None
    ) -> Iterator[tuple[Checkpoint, bytes]]:
        """Pieces of the text, each with a checkpoint at or before its beginning."""

    def blocks(self, block_rows: int, on_read: Callable[[], None] = lambda: None) -> list[Block]:
        """One pass over the file, some minutes for a large one: where every ``block_rows`` lines
        that are not empty start. ``on_read`` is called with every chunk."""
        starts = [_Start(0, 1, Checkpoint(0, 0))]
        lines, rows, size, tail = 0, 0, 0, b""
        with self.file.open() as opened:
            for checkpoint, text in self.chunks(opened, None):
                ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
                full = _not_empty(text, ends, tail)
                for index in range(-rows % block_rows or block_rows, len(full) + 1, block_rows):
                    end = int(full[index - 1])
                    line = lines + int(np.searchsorted(ends, end)) + 2
                    starts.append(_Start(size + end, line, checkpoint))
                lines, rows, size = lines + len(ends), rows + len(full), size + len(text)
                tail = (tail + text[-2:])[-2:]
                on_read()
        if size and not tail.endswith(b"\n"):
            lines, rows = lines + 1, rows + (tail not in (b"\r", b"\n\r"))
        starts.append(_Start(size, lines + 1, Checkpoint(0, 0)))  # where the last one ends
        return list(_between(starts, rows, block_rows))

    def read(self, block: Block) -> bytes:
        wanted = block.stop - block.checkpoint.text_bytes
        parts: list[bytes] = []
        held = 0
        with self.file.open() as opened:
            for _, text in self.chunks(opened, block.checkpoint):
                parts.append(text)
                held += len(text)
                if held >= wanted:
                    break
        if held < wanted:
            raise EOFError("the file has become shorter")
        return b"".join(parts)[block.start - block.checkpoint.text_bytes : wanted]


class _Start(NamedTuple):
    """Of a block: its first byte and line."""

    byte: int
    line: int
    checkpoint: Checkpoint


def _not_empty(text: bytes, ends: _Ends, tail: bytes) -> _Ends:
    """Of the ends of lines, those of lines that hold something. ``tail`` is what stands before the
    text."""
    begun = len(tail) - (tail.rfind(b"\n") + 1)  # at most 2, which is enough to know
    lengths = np.diff(ends, prepend=-begun)
    if not len(ends) or lengths.min() > 2:
        return ends
    before = np.frombuffer(tail + text, np.uint8)[ends + (len(tail) - 2)]
    full: _Ends = ends[(lengths > 2) | (lengths == 2) & (before != ord("\r"))]
    return full


def _between(starts: list[_Start], rows: int, block_rows: int) -> Iterator[Block]:
    for index, (start, end) in enumerate(pairwise(starts)):
        held = min(block_rows, rows - index * block_rows)
        if held > 0:
            yield Block(start.line, end.line - 1, held, start.byte, end.byte, start.checkpoint)


class PlainLines(Lines):
    def chunks(
        self, opened: IO[bytes], start: Checkpoint | None
    ) -> Iterator[tuple[Checkpoint, bytes]]:
        position = start.position if start else 0
        opened.seek(position)
        while text := opened.read(_CHUNK_BYTES):
            yield Checkpoint(position, position), text
            position += len(text)


class GzipLines(Lines):
    """Copies of the decompressor, 40 KB each, take the place of reading from the beginning."""

    def chunks(
        self, opened: IO[bytes], start: Checkpoint | None
    ) -> Iterator[tuple[Checkpoint, bytes]]:
        position, size, inflate = start or Checkpoint(0, 0)
        inflate = inflate.copy() if inflate else zlib.decompressobj(_GZIP)
        opened.seek(position)
        packed = opened.read(_CHUNK_BYTES // 4)
        while packed:
            checkpoint = Checkpoint(position, size, inflate.copy())
            text = inflate.decompress(packed)
            rest = inflate.unused_data
            yield checkpoint, text
            position, size = position + len(packed) - len(rest), size + len(text)
            packed = rest or opened.read(_CHUNK_BYTES // 4)
            if inflate.eof and packed:  # another member follows
                inflate = zlib.decompressobj(_GZIP)
        if not inflate.eof:
            raise EOFError("the compressed file ends too early")
