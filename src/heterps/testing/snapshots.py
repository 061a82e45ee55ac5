"""Snapshots that tests write and damage."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import fsspec
from torch import Tensor

from heterps.ps import SparseTable
from heterps.runtime.snapshot import Snapshots
from heterps.storage.places import Place


def write_chain(snapshots: Snapshots, state: Mapping[str, Tensor], *steps: int) -> None:
    """The first is whole, the others are deltas of the one before."""
    table, base = SparseTable(2, "sgd"), None
    for step in steps:
        table.push([step], [[1.0, 1.0]])
        save = functools.partial(table.save, delta_of=base)
        base = snapshots.write(step, state, {"lanes": 16}, save) / "tables"


def flip(file: Path | Place) -> None:
    """One bit in the middle of a file, wherever it is."""
    file_system, path = fsspec.core.url_to_fs(str(file))
    content = bytearray(file_system.cat_file(path))
    content[len(content) // 2] ^= 4
    file_system.pipe_file(path, bytes(content))
