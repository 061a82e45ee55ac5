"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from heterps.data.source import reason
from heterps.errors import InputError

Progress = Callable[[int, int], None]  # done, of how many


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to, which takes its place at the end; after an error or
    Ctrl-C nothing of it is left. Raises InputError where the disk refuses.
    """
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
def parquet_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Snappy, which is twice as fast to read as zstd for a few percent more bytes. Columns of
    floats, whose values hardly repeat, get no dictionaries.
    """
    repeating = [field.name for field in schema if not pa.types.is_floating(field.type)]
    with (
        aside(path) as partial,
        pq.ParquetWriter(partial, schema, compression="snappy", use_dictionary=repeating) as writer,
    ):
        yield writer


def write_text(path: Path, text: str) -> None:
    """Raises InputError."""
    with aside(path) as partial:
        partial.write_text(text, encoding="utf-8")


def nothing(_done: int, _total: int) -> None:
    """For those who want no progress."""
