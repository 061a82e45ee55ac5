"""Rows of a range of buckets in one safetensors file.

A file is laid out before its rows are known: a capture says how many each bucket has. Rows come in
blocks that are small enough for the processor's cache, each ordered by bucket, and lie in the file
as they came, block after block; ``bucket_offsets`` has a line for each block, which says where its
buckets begin. So memory stays small whatever the size of the table, a block goes to a file in one
write per column, and a bucket is read in as many pieces as there are blocks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from heterps.ps.outgoing import Outgoing
from heterps.ps.sharding import BUCKETS, bucket_of

Array = npt.NDArray[Any]
COLUMNS = ("ids", "values", "state", "frequency", "last_seen")
_OFFSETS = "bucket_offsets"
_NAMES = {np.dtype(np.int64): "I64", np.dtype(np.float32): "F32", np.dtype(np.uint32): "U32"}
_BLOCK_ROWS = 65_536


class Capture(Protocol):
    """The rows of a table at one moment, handed out in blocks, each ordered by bucket."""

    @property
    def bucket_counts(self) -> npt.NDArray[np.uint64]: ...

    def next(self, max_rows: int) -> tuple[Array, Array, Array, Array, Array] | None: ...


class TensorFile:
    """A safetensors file of known shapes, to be filled in any order; a ``new`` one is not there
    before."""

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, tuple[Any, tuple[int, ...]]],
        *,
        new: bool = True,
    ) -> None:
        header, self._spans, offset = {}, {}, 0
        for name, (dtype, shape) in tensors.items():
            row_bytes = int(np.prod(shape[1:])) * np.dtype(dtype).itemsize
            span = [offset, offset + shape[0] * row_bytes]
            header[name] = {"dtype": _NAMES[np.dtype(dtype)], "shape": shape, "data_offsets": span}
            self._spans[name] = (offset, row_bytes)
            offset = span[1]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.columns = [name for name, (_, row_bytes) in self._spans.items() if row_bytes]
        self._first = 8 + len(text)
        flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0)
        self._descriptor = os.open(path, flags, 0o666)
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
    """Spreads the rows of a capture over files of consecutive bucket ranges."""

    def __init__(
        self, outgoing: Outgoing, capture: Capture, ranges: list[range], widths: Mapping[str, int]
    ):
        self._outgoing = outgoing
        self._capture = capture
        self._widths = widths
        counts = capture.bucket_counts.astype(np.int64)
        self._rows = [int(counts[buckets.start : buckets.stop].sum()) for buckets in ranges]
        self._blocks = -(-int(counts.sum()) // _BLOCK_ROWS)
        self.ranges = [buckets for buckets, rows in zip(ranges, self._rows, strict=True) if rows]
        self._rows = [rows for rows in self._rows if rows]
        self.files: list[TensorFile] = []
        self.names: list[str] = []

    def write(self) -> None:
        """Read the capture to its end."""
        try:
            for buckets, rows in zip(self.ranges, self._rows, strict=True):
                self._add_file(buckets, rows)
            places, block = [0] * len(self.files), 0
            while (columns := self._capture.next(_BLOCK_ROWS)) is not None:
                places = self._add_block(block, dict(zip(COLUMNS, columns, strict=True)), places)
                block += 1
            for file in self.files if self._outgoing.in_place else ():
                file.sync()
        finally:
            for file in self.files:
                file.close()

    def _add_file(self, buckets: range, rows: int) -> None:
        shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
            "ids": (np.int64, (rows,)),
            _OFFSETS: (np.int64, (self._blocks, len(buckets) + 1)),
            **{name: (np.float32, (rows, width)) for name, width in self._widths.items() if width},
            "frequency": (np.uint32, (rows,)),
            "last_seen": (np.uint32, (rows,)),
        }
        name = f"rows-{buckets.start:04}-{buckets.stop:04}.safetensors"
        path = self._outgoing.path(name)
        self.files.append(TensorFile(path, shapes, new=self._outgoing.in_place))
        self.names.append(name)

    def _add_block(
        self, block: int, columns: Mapping[str, Array], places: Sequence[int]
    ) -> list[int]:
        """Writes it from these rows of the files on; the rows behind it."""
        counts = np.bincount(bucket_of(columns["ids"]), minlength=BUCKETS)
        first = np.concatenate([[0], np.cumsum(counts)])
        ends = []
        for file, buckets, place in zip(self.files, self.ranges, places, strict=True):
            own = first[buckets.start : buckets.stop + 1]
            file.write(_OFFSETS, block, own - own[0] + place)
            for name in file.columns:
                if name != _OFFSETS:
                    file.write(name, place, columns[name][own[0] : own[-1]])
            ends.append(place + int(own[-1] - own[0]))
        return ends


def write_tensors(outgoing: Outgoing, name: str, arrays: Mapping[str, Array]) -> None:
    """A small file, in one go."""
    shapes = {column: (a.dtype, a.shape) for column, a in arrays.items()}
    file = TensorFile(outgoing.path(name), shapes, new=outgoing.in_place)
    try:
        for column in file.columns:
            file.write(column, 0, np.ascontiguousarray(arrays[column]))
        if outgoing.in_place:
            file.sync()
    finally:
        file.close()


def read_tensors(path: Path) -> dict[str, Array]:
    """All tensors of a file."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_rows(path: Path, buckets: range, wanted: range) -> Iterator[dict[str, Array]]:
    """The rows of the wanted buckets of a file that holds ``buckets``, piece by piece."""
    first = max(wanted.start, buckets.start) - buckets.start
    last = min(wanted.stop, buckets.stop) - buckets.start
    with safe_open(path, framework="numpy") as file:
        offsets = file.get_tensor(_OFFSETS)
        names = [name for name in COLUMNS if name in file.keys()]  # noqa: SIM118
        for start, end in _pieces(offsets[:, first], offsets[:, last]):
            for at in range(start, end, _BLOCK_ROWS):
                rows = slice(at, min(at + _BLOCK_ROWS, end))
                yield {name: file.get_slice(name)[rows] for name in names}


def _pieces(starts: Array, ends: Array) -> list[tuple[int, int]]:
    """Those that follow each other as one; none that is empty."""
    held = starts < ends
    starts, ends = starts[held], ends[held]
    apart = starts[1:] != ends[:-1]
    starts = np.concatenate([starts[:1], starts[1:][apart]])
    ends = np.concatenate([ends[:-1][apart], ends[-1:]])
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
