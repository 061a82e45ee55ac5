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

from heterps.ps.manifests import sync
from heterps.ps.sharding import bucket_of

Array = npt.NDArray[Any]
COLUMNS = ("ids", "values", "state", "frequency", "last_seen")
_OFFSETS = "bucket_offsets"
_NAMES = {np.dtype(np.int64): "I64", np.dtype(np.float32): "F32", np.dtype(np.uint32): "U32"}
_BLOCK_ROWS = 65_536


class Capture(Protocol):
    """The rows of a table at one moment, handed out in any order."""

    @property
    def bucket_counts(self) -> npt.NDArray[np.uint64]: ...

    def next(self, max_rows: int) -> tuple[Array, Array, Array, Array, Array] | None: ...


class TensorFile:
    """A safetensors file of known shapes, to be filled in place."""

    def __init__(self, path: Path, tensors: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        header, offset = {}, 0
        for name, (dtype, shape) in tensors.items():
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            span = [offset, offset + size]
            header[name] = {"dtype": _NAMES[np.dtype(dtype)], "shape": shape, "data_offsets": span}
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.path = path
        self.arrays: dict[str, Array] = {}
        self._map = self._reserve(len(text).to_bytes(8, "little") + text, offset)
        for name, (dtype, shape) in tensors.items():
            first, end = (8 + len(text) + at for at in header[name]["data_offsets"])
            self.arrays[name] = self._map[first:end].view(dtype).reshape(shape)

    def _reserve(self, head: bytes, size: int) -> np.memmap[Any, Any]:
        with self.path.open("xb") as file:
            file.write(head)
            # Without room on the disk a write into the map would kill the process; this raises.
            os.posix_fallocate(file.fileno(), 0, len(head) + size)
        return np.memmap(self.path, np.uint8, "r+")

    def close(self) -> None:
        """What was written is on the disk once this returns."""
        self.arrays.clear()
        self._map.flush()
        sync(self.path)


class BucketWriter:
    """Scatters the rows of a capture over files of consecutive bucket ranges."""

    def __init__(
        self, folder: Path, capture: Capture, ranges: list[range], widths: Mapping[str, int]
    ):
        self._capture = capture
        self._place = np.zeros(len(capture.bucket_counts), np.int64)
        self._file_of = np.full(len(capture.bucket_counts), -1, np.int64)
        self.files: list[TensorFile] = []
        self.ranges: list[range] = []
        for buckets in ranges:
            counts = capture.bucket_counts[buckets.start : buckets.stop].astype(np.int64)
            if counts.sum():
                self._add_file(folder, buckets, counts, widths)

    def _add_file(
        self, folder: Path, buckets: range, counts: Array, widths: Mapping[str, int]
    ) -> None:
        rows = int(counts.sum())
        shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
            "ids": (np.int64, (rows,)),
            _OFFSETS: (np.int64, (len(buckets) + 1,)),
            **{name: (np.float32, (rows, width)) for name, width in widths.items() if width},
            "frequency": (np.uint32, (rows,)),
            "last_seen": (np.uint32, (rows,)),
        }
        name = f"rows-{buckets.start:04}-{buckets.stop:04}.safetensors"
        file = TensorFile(folder / name, shapes)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        file.arrays[_OFFSETS][:] = offsets
        self._place[buckets.start : buckets.stop] = offsets[:-1]
        self._file_of[buckets.start : buckets.stop] = len(self.files)
        self.files.append(file)
        self.ranges.append(buckets)

    def write(self) -> None:
        """Read the capture to its end."""
        while (block := self._capture.next(_BLOCK_ROWS)) is not None:
            self._scatter(dict(zip(COLUMNS, block, strict=True)))
        for file in self.files:
            file.close()

    def _scatter(self, block: Mapping[str, Array]) -> None:
        buckets = bucket_of(block["ids"])
        order = np.argsort(buckets, kind="stable")
        ordered = buckets[order]
        first = np.searchsorted(ordered, ordered)  # where each row's bucket starts in this block
        places = self._place[ordered] + np.arange(len(ordered)) - first
        np.add.at(self._place, ordered, 1)
        owner = self._file_of[ordered]
        for index in np.unique(owner):
            chosen = owner == index
            for name, target in self.files[index].arrays.items():
                if name != _OFFSETS:
                    target[places[chosen]] = block[name][order[chosen]]


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """A small file, in one go."""
    file = TensorFile(path, {name: (a.dtype, a.shape) for name, a in arrays.items()})
    for name, array in arrays.items():
        file.arrays[name][...] = array
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
