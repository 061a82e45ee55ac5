"""Columns of a row group as arrays: the label, dense floats, ids of every slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from heterps.data.hashing import hash_integers, hash_texts, missing_id
from heterps.errors import InputError, UnknownNameError
from heterps.job.data import DataSpec, SparseSlot

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


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
    slots: dict[str, Ids | Bags]

    @property
    def size_bytes(self) -> int:
        targets = (entry for entry in (self.label, self.weight) if entry is not None)
        arrays: list[npt.NDArray[Any]] = [self.dense, *targets]
        for slot in self.slots.values():
            arrays.extend(slot if isinstance(slot, Bags) else (slot,))
        return sum(array.nbytes for array in arrays)


def check_schema(schema: pa.Schema, spec: DataSpec, url: str, *, labels: bool) -> None:
    """Raises InputError for a column that is not there, or of a type that does not fit."""
    for column, field in spec.column_paths(labels=labels).items():
        if column not in schema.names:
            raise UnknownNameError(f"data.{field}", f"column of {url}", column, schema.names)
    slots = {slot.name: slot for slot in spec.sparse}
    for column, field in spec.column_paths(labels=labels).items():
        kind = schema.field(column).type
        slot = slots.get(column)
        problem = _slot_problem(slot, kind) if slot else _number_problem(kind)
        if problem:
            raise InputError(f"data.{field}", f"column '{column}' of {url} {problem}")


def _number_problem(kind: pa.DataType) -> str:
    return "" if _is_number(kind) else f"holds {kind}, expected numbers"


def _slot_problem(slot: SparseSlot, kind: pa.DataType) -> str:
    listed = _is_list(kind)
    if listed and not slot.multi:
        return f"holds lists: write {{name: {slot.name}, multi: true}}"
    if slot.multi and not listed:
        return f"holds {kind}, one value a row: leave out multi"
    if not _is_category(kind.value_type if listed else kind):
        return f"holds {kind}, expected whole numbers or texts"
    return ""


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in kinds) or bool(pa.types.is_null(kind))


def _is_category(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_category(kind.value_type)
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_null, *_TEXTS)
    return any(test(kind) for test in kinds)


_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


def decode(table: pa.Table, spec: DataSpec, rows: Rows | None, *, labels: bool) -> Columns:
    """The columns of a table, in the order of ``rows`` (all of them as they stand for None).
    Raises InputError, whose path is the column, for labels and weights that are none.
    """
    count = table.num_rows if rows is None else len(rows)
    weight = spec.weight if labels else None
    return Columns(
        count,
        _dense(table, spec, rows, count),
        _target(table, spec.label, rows) if labels else None,
        None if weight is None else _target(table, weight, rows),
        {slot.name: _slot(table, slot, rows) for slot in spec.sparse},
    )


def _taken(values: npt.NDArray[np.generic], rows: Rows | None) -> npt.NDArray[np.generic]:
    return values if rows is None else values[rows]


def _dense(table: pa.Table, spec: DataSpec, rows: Rows | None, count: int) -> Floats:
    together = np.empty((count, len(spec.dense)), np.float32)
    for index, name in enumerate(spec.dense):
        together[:, index] = _taken(_numbers(table[name]), rows)
    if spec.transform == "log1p":
        size = np.log1p(np.abs(together))
        together = np.copysign(size, together)
    missing = ~np.isfinite(together)
    if missing.any():
        together[missing] = 0
    return together


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    """As floats, NaN where a value is missing."""
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    values: npt.NDArray[np.generic] = column.to_numpy()
    return values


def _target(table: pa.Table, name: str, rows: Rows | None) -> Floats:
    values = _taken(_numbers(table[name]), rows).astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(name, "a value is missing or not finite; labels and weights have to be")
    return values


def _slot(table: pa.Table, slot: SparseSlot, rows: Rows | None) -> Ids | Bags:
    column = table[slot.name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # no chunk at all
        column = pa.array([], column.type)
    if not slot.multi:
        return _ids(column, slot.name, rows)
    # a missing list is an empty one
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    bags = Bags(_ids(column.flatten(), slot.name, None), offsets)
    return bags if rows is None else bags.take(rows)


def _ids(column: pa.Array, slot: str, rows: Rows | None) -> Ids:
    if pa.types.is_dictionary(column.type):
        return _dictionary_ids(column, slot, rows)
    if any(test(column.type) for test in _TEXTS):
        ids = _text_ids(column, slot)
        return ids if rows is None else ids[rows]
    if pa.types.is_null(column.type):
        return np.full(len(column) if rows is None else len(rows), missing_id(slot), np.int64)
    values = _integers(pc.fill_null(column, 0) if column.null_count else column)
    ids = hash_integers(slot, values if rows is None else values[rows])
    if column.null_count:
        ids[_taken(~column.is_valid().to_numpy(zero_copy_only=False), rows)] = missing_id(slot)
    return ids


def _dictionary_ids(column: pa.DictionaryArray, slot: str, rows: Rows | None) -> Ids:
    """The ids of the few distinct values, spread over the rows; the missing one comes last."""
    distinct = np.append(_ids(column.dictionary, slot, None), missing_id(slot))
    indices = column.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), len(distinct) - 1)
    places = indices.to_numpy()
    ids: Ids = distinct[places if rows is None else places[rows]]
    return ids


def _text_ids(column: pa.Array, slot: str) -> Ids:
    if not len(column):
        return np.empty(0, np.int64)
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offset_buffer, data_buffer = column.buffers()
    width = np.dtype(np.int64 if large else np.int32)
    offsets = np.frombuffer(offset_buffer, width, len(column) + 1, column.offset * width.itemsize)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    ids = hash_texts(slot, data, offsets.astype(np.int64))
    if column.null_count:
        ids[~column.is_valid().to_numpy(zero_copy_only=False)] = missing_id(slot)
    return ids


def _integers(column: pa.Array) -> Ids:
    if pa.types.is_uint64(column.type):
        return np.asarray(column.to_numpy()).view(np.int64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    values: Ids = column.to_numpy().astype(np.int64, copy=False)
    return values
