"""Parquet files: their own row groups, the columns that are wanted, texts as dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from heterps.data.base import GroupedFile
from heterps.data.remote import Extent, FetchedFile, merged
from heterps.data.source import SourceFile
from heterps.errors import InputError
from heterps.storage.patience import Ahead, reason

_TAIL_BYTES = 1 << 20  # holds the footer of most files
_Parts = list[tuple[Extent, bytes]]


class ParquetGroups(GroupedFile):
    def __init__(self, file: SourceFile, on_read: Callable[[], None] = lambda: None) -> None:
        super().__init__(file)
        self._coming: dict[int, Ahead[_Parts]] = {}
        self._extents = lru_cache(maxsize=None)(self._extents_of)
        try:
            with self._opened(self._tail()) as opened:
                self._metadata = opened.metadata
                self.schema = opened.schema_arrow
        except (pa.ArrowException, OSError) as error:
            # Arrow's own OSErrors, for a damaged footer, carry no number
            refused = getattr(error, "errno", None) is not None
            what = "cannot be read" if refused else "is not whole Parquet"
            raise InputError(file.url, f"{what} ({reason(error)})") from None
        on_read()
        rows = (self._metadata.row_group(i) for i in range(self._metadata.num_row_groups))
        self.sizes = [group.num_rows for group in rows]
        self._texts = [field.name for field in self.schema if _is_text(field.type)]

    def announce(self, index: int, columns: Sequence[str]) -> int:
        if self.file.is_local:
            return 0
        extents = self._extents(index, tuple(columns))
        if index not in self._coming:
            self._coming[index] = Ahead(lambda: self._fetched(extents))
        return sum(extent.stop - extent.start for extent in extents)

    def forget(self, index: int) -> None:
        self._coming.pop(index, None)

    def read(self, index: int, columns: Sequence[str]) -> pa.Table:
        texts = [name for name in self._texts if name in columns]
        parts = self._parts(index, tuple(columns))
        try:
            with self._opened(parts, metadata=self._metadata, read_dictionary=texts) as opened:
                table = opened.read_row_group(index, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            problem = f"row group {index} cannot be read ({reason(error)})"
            advice = "is the file damaged, or has it been replaced?"
            raise InputError(self.file.url, f"{problem}: {advice}") from None
        return table

    def _opened(self, parts: _Parts, **options: Any) -> pq.ParquetFile:
        if self.file.is_local:
            return pq.ParquetFile(self.file.path, **options)
        held = FetchedFile(self.file.size_bytes, parts, self.file.read_range)
        return pq.ParquetFile(held, **options)

    def _tail(self) -> _Parts:
        if self.file.is_local:
            return []
        size = self.file.size_bytes
        return self._fetched([Extent(max(0, size - _TAIL_BYTES), size)])

    def _parts(self, index: int, columns: tuple[str, ...]) -> _Parts:
        if self.file.is_local:
            return []
        ahead = self._coming.pop(index, None)
        return ahead.result() if ahead else self._fetched(self._extents(index, columns))

    def _fetched(self, extents: Sequence[Extent]) -> _Parts:
        return [(extent, self.file.read_range(*extent)) for extent in extents]

    def _extents_of(self, index: int, columns: tuple[str, ...]) -> list[Extent]:
        """Where the wanted columns of a row group are."""
        group = self._metadata.row_group(index)
        chunks = (group.column(i) for i in range(group.num_columns))
        wanted = (c for c in chunks if c.path_in_schema.partition(".")[0] in columns)
        return merged(map(_extent, wanted))


def _extent(chunk: Any) -> Extent:
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return Extent(start, start + chunk.total_compressed_size)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
