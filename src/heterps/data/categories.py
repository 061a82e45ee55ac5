"""Ids of a column of whole numbers or texts, however Arrow holds it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from heterps.data.hashing import hash_integers, hash_texts, missing_id

Ids = npt.NDArray[np.int64]


def is_text(kind: pa.DataType) -> bool:
    return _is_large_text(kind) or bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_large_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def ids_of(column: pa.Array, space: str, *, hashed: bool = True) -> Ids:
    """An id for every value, in order."""
    ids = np.empty(len(column), np.int64)
    write_ids(column, space, None, ids, hashed=hashed)
    return ids


def write_ids(
    column: pa.Array, space: str, rows: Ids | None, out: Ids, *, hashed: bool = True
) -> None:
    """The same for the given rows only, into memory that is there."""
    if pa.types.is_dictionary(column.type):
        distinct, values = _distinct(column, space)
        _take(distinct, values if rows is None else values[rows], out)
    elif is_text(column.type):
        _take(_text_ids(column, space), rows, out)
    elif pa.types.is_null(column.type):
        out[:] = missing_id(space)
    else:
        _take(_integers(column), rows, out)
        if hashed:
            hash_integers(space, out)
        if column.null_count:
            missing = _is_missing(column)
            out[missing if rows is None else missing[rows]] = missing_id(space)


def _take(values: Ids, rows: npt.NDArray[np.integer] | None, out: Ids) -> None:
    if rows is None:
        out[:] = values
    else:
        np.take(values, rows, out=out, mode="clip")  # the other modes make a copy first


def _is_missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    missing: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return missing


def _distinct(column: pa.DictionaryArray, space: str) -> tuple[Ids, npt.NDArray[np.integer]]:
    """The ids of the few distinct values, the missing one last, and which of them each row has."""
    distinct = np.append(ids_of(column.dictionary, space), missing_id(space))
    indices = column.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), len(distinct) - 1)
    return distinct, indices.to_numpy()


def _text_ids(column: pa.Array, space: str) -> Ids:
    if not len(column):
        return np.empty(0, np.int64)
    _, offset_buffer, data_buffer = column.buffers()
    width = np.dtype(np.int64 if _is_large_text(column.type) else np.int32)
    offsets = np.frombuffer(offset_buffer, width, len(column) + 1, column.offset * width.itemsize)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    ids = hash_texts(space, data, offsets.astype(np.int64))
    if column.null_count:
        ids[_is_missing(column)] = missing_id(space)
    return ids


def _integers(column: pa.Array) -> Ids:
    """What stands for missing values is overwritten later."""
    if column.null_count:
        column = pc.fill_null(column, 0)
    if pa.types.is_uint64(column.type):
        return np.asarray(column.to_numpy()).view(np.int64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    values: Ids = column.to_numpy().astype(np.int64, copy=False)
    return values
