"""Columns of a row group as arrays: the label, dense floats, ids of every slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from heterps.data.categories import Ids, ids_of, write_ids
from heterps.errors import InputError
from heterps.job.data import DataSpec, SparseSlot

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
_PIECE = 2048


class Bags(NamedTuple):
    """Ids of a multi-hot slot: row i has those from ``offsets[i]`` up to ``offsets[i + 1]``."""

    ids: Ids
    offsets: Ids

    def take(self, rows: Rows) -> Bags:
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        shifts = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Bags(self.ids[shifts + np.arange(offsets[-1])], offsets)


@dataclass(frozen=True)
class Columns:
    """Rows in the order in which they will be handed out."""

    rows: int
    dense: Floats  # [rows, number of dense columns]
    label: Floats | None
    weight: Floats | None
    singles: tuple[str, ...]  # slots of one value a row
    ids: Ids  # [singles, rows]
    bags: dict[str, Bags]

    @property
    def size_bytes(self) -> int:
        targets = (entry for entry in (self.label, self.weight) if entry is not None)
        arrays: list[npt.NDArray[Any]] = [self.dense, self.ids, *targets]
        bags = (array for bags in self.bags.values() for array in bags)
        return sum(array.nbytes for array in (*arrays, *bags))


def decode(table: pa.Table, spec: DataSpec, rows: Rows | None, *, labels: bool) -> Columns:
    """The columns of a table, in the order of ``rows`` (all of them as they stand for None).
    Raises InputError, whose path is the column, for labels and weights that are none.
    """
    count = table.num_rows if rows is None else len(rows)
    weight = spec.weight if labels else None
    singles = [slot for slot in spec.sparse if not slot.multi]
    ids = np.empty((len(singles), count), np.int64)
    for slot, out in zip(singles, ids, strict=True):
        column, space = _array(table[slot.name]), slot.space or slot.name
        write_ids(column, space, rows, out, hashed=slot.hash)
    return Columns(
        count,
        _dense(table, spec, rows),
        _target(table, spec.label, rows) if labels else None,
        None if weight is None else _weight(table, weight, rows),
        tuple(slot.name for slot in singles),
        ids,
        {slot.name: _bags(table, slot, rows) for slot in spec.sparse if slot.multi},
    )


def _taken(values: npt.NDArray[np.generic], rows: Rows | None) -> npt.NDArray[np.generic]:
    return values if rows is None else values[rows]


def _dense(table: pa.Table, spec: DataSpec, rows: Rows | None) -> Floats:
    together = np.empty((table.num_rows, len(spec.dense)), np.float32)
    for index, name in enumerate(spec.dense):
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
            together[:, index] = _numbers(table[name])
    if spec.transform == "log1p":
        _log1p_in_place(together.reshape(-1))
    with np.errstate(invalid="ignore", over="ignore"):
        total = together.sum()
    if not np.isfinite(total):  # cheaper than looking at each
        together[~np.isfinite(together)] = 0
    return together if rows is None else np.take(together, rows, axis=0)


def _log1p_in_place(values: Floats) -> None:
    """sign(x) log(1 + |x|). torch is four times as fast as numpy here, and takes no helping threads
    for pieces of this size: those of a reader would slow down those of the model beside it.
    """
    import torch

    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        tensor = torch.from_numpy(piece)
        if piece.min() >= 0:
            torch.log1p(tensor, out=tensor)
        else:  # or where one is missing
            torch.copysign(torch.log1p(tensor.abs()), tensor, out=tensor)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    """As floats, NaN where a value is missing."""
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    values: npt.NDArray[np.generic] = column.to_numpy()
    return values


def _target(table: pa.Table, name: str, rows: Rows | None) -> Floats:
    with np.errstate(over="ignore"):
        values = _taken(_numbers(table[name]), rows).astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(name, "a value is missing or not finite; labels and weights have to be")
    return values


def _weight(table: pa.Table, name: str, rows: Rows | None) -> Floats:
    values = _target(table, name, rows)
    if len(values) and values.min() < 0:
        raise InputError(name, f"expected weights of 0 or more, got {values.min():g}")
    return values


def _bags(table: pa.Table, slot: SparseSlot, rows: Rows | None) -> Bags:
    column = _array(table[slot.name])
    # a missing list is an empty one
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    ids = ids_of(column.flatten(), slot.space or slot.name, hashed=slot.hash)
    bags = Bags(ids, np.concatenate([[0], np.cumsum(lengths)]))
    return bags if rows is None else bags.take(rows)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
