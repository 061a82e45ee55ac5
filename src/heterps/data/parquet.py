"""Parquet files: their own row groups, the columns that are wanted, texts as dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from heterps.data.base import GroupedFile
from heterps.data.source import SourceFile, reason
from heterps.errors import InputError


class ParquetGroups(GroupedFile):
    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        try:
            with self._opened() as opened:
                self._metadata = opened.metadata
                self.schema = opened.schema_arrow
        except (pa.ArrowException, OSError) as error:
            # Arrow's own OSErrors, for a damaged footer, carry no number
            refused = getattr(error, "errno", None) is not None
            what = "cannot be read" if refused else "is not whole Parquet"
            raise InputError(file.url, f"{what} ({reason(error)})") from None
        rows = (self._metadata.row_group(i) for i in range(self._metadata.num_row_groups))
        self.sizes = [group.num_rows for group in rows]
        self._texts = [field.name for field in self.schema if _is_text(field.type)]

    def read(self, index: int, columns: Sequence[str]) -> pa.Table:
        texts = [name for name in self._texts if name in columns]
        try:
            with self._opened(metadata=self._metadata, read_dictionary=texts) as opened:
                table = opened.read_row_group(index, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            problem = f"row group {index} cannot be read ({reason(error)}); is the file damaged?"
            raise InputError(self.file.url, problem) from None
        return table

    def _opened(self, **options: Any) -> pq.ParquetFile:
        if self.file.is_local:
            return pq.ParquetFile(self.file.path, **options)
        # the columns of a row group in few large requests
        return pq.ParquetFile(self.file.open(), pre_buffer=True, **options)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
