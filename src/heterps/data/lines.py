"""Text files as blocks of lines, each readable without those before it."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np

from heterps.data.source import SourceFile

_CHUNK_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


class Checkpoint(NamedTuple):
    """Where reading can start: a position in the file, the text before it, and for compressed
    files the state of the decompressor.
    """

    position: int
    text_bytes: int
    inflate: Any = None


@dataclass(frozen=True)
class Block:
    """``rows`` lines from ``first_line`` (counted from 1), ``stop - start`` bytes of text."""

    first_line: int
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
        start. ``on_read`` is called with every chunk."""
        starts = [(0, Checkpoint(0, 0))]  # of each block: its first byte
        lines, size, last = 0, 0, b"\n"
        with self.file.open() as opened:
            for checkpoint, text in self.chunks(opened, None):
                ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
                for index in range(-lines % block_rows or block_rows, len(ends) + 1, block_rows):
                    starts.append((size + int(ends[index - 1]), checkpoint))
                lines, size, last = lines + len(ends), size + len(text), text[-1:] or last
                on_read()
        lines += last != b"\n"
        return list(_between(starts, size, lines, block_rows))

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


def _between(
    starts: list[tuple[int, Checkpoint]], size: int, lines: int, block_rows: int
) -> Iterator[Block]:
    ends = [start for start, _ in starts[1:]] + [size]
    for index, ((start, checkpoint), stop) in enumerate(zip(starts, ends, strict=True)):
        if start < stop:
            first = index * block_rows
            rows = min(block_rows, lines - first)
            yield Block(first + 1, rows, start, stop, checkpoint)


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
