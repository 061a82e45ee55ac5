"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from heterps.data.categories import is_text
from heterps.errors import InputError
from heterps.storage.access import Storage
from heterps.storage.patience import reason
from heterps.storage.places import place
from heterps.storage.publish import to_url

Progress = Callable[[int, int], None]  # done, of how many


@contextlib.contextmanager
def aside(path: Path | str, storage: Storage | None = None) -> Iterator[Path]:
    """A local path to write to, which takes the place of ``path`` at the end; after an error or
    Ctrl-C nothing of it is left. ``path`` may be a URL. Raises InputError where that is refused.
    """
    found = place(path)
    if not isinstance(found, Path):
        with to_url(str(path), storage) as local:
            yield local
        return
    path = found
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(path), f"cannot be written ({reason(error)})") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def parquet_writer(
    path: Path | str, schema: pa.Schema, storage: Storage | None = None
) -> Iterator[pq.ParquetWriter]:
    """Snappy, and whole numbers as packed differences: these take half the time of dictionaries to
    read, and are no larger. Texts have dictionaries.
    """
    packed = {_leaf(field): "DELTA_BINARY_PACKED" for field in schema if _is_whole(field.type)}
    others = [_leaf(field) for field in schema if is_text(_value_type(field.type))]
    with (
        aside(path, storage) as partial,
        pq.ParquetWriter(
            partial,
            schema,
            compression="snappy",
            use_dictionary=others,
            column_encoding=packed,
        ) as writer,
    ):
        yield writer


def _value_type(kind: pa.DataType) -> pa.DataType:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return kind.value_type if listed else kind


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(_value_type(kind)))


def _leaf(field: pa.Field) -> str:
    """What Parquet calls the column that holds the values."""
    return (
        str(field.name) if _value_type(field.type) == field.type else f"{field.name}.list.element"
    )


def write_text(path: Path, text: str) -> None:
    """Raises InputError."""
    with aside(path) as partial:
        partial.write_text(text, encoding="utf-8")


def nothing(_done: int, _total: int) -> None:
    """For those who want no progress."""
