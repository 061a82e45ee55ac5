"""Rows of a range of buckets in one safetensors file, sorted by bucket.

A file is laid out before its rows are known: a capture says how many each bucket has, so rows are
scattered to their places as they come, and memory stays small whatever the size of the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from heterps.ps.sharding import bucket_of

Array = npt.NDArray[Any]
COLUMNS = ("ids", "values", "state", "frequency", "last_seen")
_OFFSETS = "bucket_offsets"
_NAMES = {np.dtype(np.int64): "I64", np.dtype(np.float32): "F32", np.dtype(np.uint32): "U32"}
_BLOCK_ROWS = 65_536
_BLOCKS = 4  # that are sorted and written at a time


class Capture(Protocol):
    """The rows of a table at one moment, handed out in any order."""

    @property
    def bucket_counts(self) -> npt.NDArray[np.uint64]: ...

    def next(self, max_rows: int) -> tuple[Array, Array, Array, Array, Array] | None: ...


class TensorFile:
    """A safetensors file of known shapes, to be filled in any order."""

    def __init__(self, path: Path, tensors: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        header, self._spans, offset = {}, {}, 0
        for name, (dtype, shape) in tensors.items():
            row_bytes = int(np.prod(shape[1:])) * np.dtype(dtype).itemsize
            span = [offset, offset + shape[0] * row_bytes]
            header[name] = {"dtype": _NAMES[np.dtype(dtype)], "shape": shape, "data_offsets": span}
            self._spans[name] = (offset, row_bytes)
            offset = span[1]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.path = path
        self.columns = [name for name, (_, row_bytes) in self._spans.items() if row_bytes]
        self._first = 8 + len(text)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            # Without room on the disk this raises, before any work is done.
            os.posix_fallocate(self._descriptor, 0, self._first + offset)
            self._put(len(text).to_bytes(8, "little") + text, 0)
        except OSError:
            self.close()
            raise

    def write(self, name: str, row: int, rows: Array) -> None:
        """Rows of a tensor from this one on; they lie in one piece."""
        offset, row_bytes = self._spans[name]
        self._put(rows.data, self._first + offset + row * row_bytes)

    def sync(self) -> None:
        """What was written is on the disk once this returns."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _put(self, data: bytes | memoryview, at: int) -> None:
        left = memoryview(data).cast("B") if len(data) else memoryview(b"")
        while left:
            written = os.pwrite(self._descriptor, left, at)
            left, at = left[written:], at + written


class BucketWriter:
    """Scatters the rows of a capture over files of consecutive bucket ranges."""

    def __init__(
        self, folder: Path, capture: Capture, ranges: list[range], widths: Mapping[str, int]
    ):
        self._folder = folder
        self._capture = capture
        self._widths = widths
        self._place = np.zeros(len(capture.bucket_counts), np.int64)
        self._file_of = np.full(len(capture.bucket_counts), -1, np.int64)
        self.files: list[TensorFile] = []
        self.ranges = [b for b in ranges if capture.bucket_counts[b.start : b.stop].sum()]

    def write(self) -> None:
        """Read the capture to its end."""
        try:
            for buckets in self.ranges:
                self._add_file(buckets)
            for block in self._blocks():
                self._scatter(block)
            for file in self.files:
                file.sync()
        finally:
            for file in self.files:
                file.close()

    def _add_file(self, buckets: range) -> None:
        counts = self._capture.bucket_counts[buckets.start : buckets.stop].astype(np.int64)
        rows = int(counts.sum())
        shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
            "ids": (np.int64, (rows,)),
            _OFFSETS: (np.int64, (len(buckets) + 1,)),
            **{name: (np.float32, (rows, width)) for name, width in self._widths.items() if width},
            "frequency": (np.uint32, (rows,)),
            "last_seen": (np.uint32, (rows,)),
        }
        name = f"rows-{buckets.start:04}-{buckets.stop:04}.safetensors"
        file = TensorFile(self._folder / name, shapes)
        self._file_of[buckets.start : buckets.stop] = len(self.files)
        self.files.append(file)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        file.write(_OFFSETS, 0, offsets)
        self._place[buckets.start : buckets.stop] = offsets[:-1]

    def _blocks(self) -> Iterator[dict[str, Array]]:
        """Large ones, whose runs of a bucket are worth a write, of small ones: the table stands
        still while it hands one out."""
        held: list[tuple[Array, ...]] = []
        while (block := self._capture.next(_BLOCK_ROWS)) is not None:
            held.append(block)
            if len(held) == _BLOCKS:
                yield _joined(held)
                held = []
        if held:
            yield _joined(held)

    def _scatter(self, block: Mapping[str, Array]) -> None:
        buckets = bucket_of(block["ids"])
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=len(self._place))
        runs = self._runs(counts)
        for name in COLUMNS:
            ordered = np.take(block[name], order, axis=0)
            for index, place, rows in runs:
                file = self.files[index]
                if name in file.columns:
                    file.write(name, place, ordered[rows])
        self._place += counts

    def _runs(self, counts: Array) -> list[tuple[int, int, slice]]:
        """Of a block that is ordered by bucket: file, place in it, and rows of the block that
        follow each other there too."""
        held = np.flatnonzero(counts)
        ends, sizes = np.cumsum(counts[held]), counts[held]
        files, places = self._file_of[held], self._place[held]
        apart = (files[1:] != files[:-1]) | (places[1:] != places[:-1] + sizes[:-1])
        first = np.concatenate([[0], np.flatnonzero(apart) + 1])
        last = np.concatenate([first[1:], [len(held)]]) - 1
        return [
            (int(files[a]), int(places[a]), slice(int(ends[a] - sizes[a]), int(ends[b])))
            for a, b in zip(first, last, strict=True)
        ]


def _joined(blocks: list[tuple[Array, ...]]) -> dict[str, Array]:
    columns = zip(*blocks, strict=True)
    return {name: np.concatenate(c) for name, c in zip(COLUMNS, columns, strict=True)}


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """A small file, in one go."""
    file = TensorFile(path, {name: (a.dtype, a.shape) for name, a in arrays.items()})
    try:
        for name in file.columns:
            file.write(name, 0, np.ascontiguousarray(arrays[name]))
        file.sync()
    finally:
        file.close()


def read_tensors(path: Path) -> dict[str, Array]:
    """All tensors of a file."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_rows(path: Path, buckets: range, wanted: range) -> Iterator[dict[str, Array]]:
    """The rows of the wanted buckets of a file that holds ``buckets``, block by block."""
    with safe_open(path, framework="numpy") as file:
        offsets = file.get_tensor(_OFFSETS)
        first = offsets[max(wanted.start, buckets.start) - buckets.start]
        end = offsets[min(wanted.stop, buckets.stop) - buckets.start]
        names = [name for name in COLUMNS if name in file.keys()]  # noqa: SIM118
        for at in range(first, end, _BLOCK_ROWS):
            rows = slice(at, min(at + _BLOCK_ROWS, end))
            yield {name: file.get_slice(name)[rows] for name in names}
