"""Criteo's TSV: a label, 13 whole numbers, 26 texts; an empty field is a missing value.

A file without the label column, as in Criteo's test set, is told by its 39 fields. Blocks of lines
act as row groups: one pass over the file finds where they start. Empty lines are skipped.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.csv

from heterps.data.base import GroupedFile
from heterps.data.lines import GzipLines, Lines, PlainLines
from heterps.data.source import SourceFile
from heterps.errors import InputError
from heterps.storage.patience import reason

# Ctrl-C is for the command line to handle; pyarrow would take it while it parses a block.
pa.enable_signal_handlers(False)

LABEL = "label"
DENSE = tuple(f"I{i}" for i in range(1, 14))
SPARSE = tuple(f"C{i}" for i in range(1, 27))
BLOCK_ROWS = 65536
_KNOWN = [LABEL, *DENSE, *SPARSE]


class CriteoGroups(GroupedFile):
    def __init__(
        self,
        file: SourceFile,
        block_rows: int = BLOCK_ROWS,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(file)
        self._lines: Lines = (GzipLines if file.suffix.endswith(".gz") else PlainLines)(file)
        try:
            self._blocks = self._lines.blocks(block_rows, on_read)
            first = self._lines.read(self._blocks[0]) if self._blocks else b""
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(file.url, f"cannot be read ({reason(error)})") from None
        self.sizes = [block.rows for block in self._blocks]
        line = first.lstrip(b"\r\n").partition(b"\n")[0]
        self._names = _names(line.count(b"\t") + 1, file) if line else _KNOWN
        kinds = {LABEL: pa.float32(), **dict.fromkeys(DENSE, pa.float32())}
        texts = pa.dictionary(pa.int32(), pa.string())
        self.schema = pa.schema([(name, kinds.get(name, texts)) for name in self._names])

    def read(self, index: int, columns: Sequence[str]) -> pa.Table:
        block = self._blocks[index]
        try:
            return self._parsed(self._lines.read(block), columns)
        except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
            where = f"lines {block.first_line} to {block.last_line}"
            raise InputError(self.file.url, f"{where} cannot be read ({reason(error)})") from None

    def _parsed(self, text: bytes, columns: Sequence[str]) -> pa.Table:
        options = pa.csv.ReadOptions(
            column_names=self._names, use_threads=False, block_size=max(len(text), 1)
        )
        parse = pa.csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=True)
        convert = pa.csv.ConvertOptions(
            column_types=self.schema,
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
        )
        return pa.csv.read_csv(pa.BufferReader(text), options, parse, convert)


def _names(fields: int, file: SourceFile) -> list[str]:
    if fields not in (len(_KNOWN), len(_KNOWN) - 1):
        expected = (
            f"expected {len(_KNOWN)} fields a line with tabs between them (a label, 13 numbers"
        )
        raise InputError(file.url, f"{expected}, 26 texts), got {fields}: is it Criteo's format?")
    return _KNOWN[1:] if fields == len(_KNOWN) - 1 else _KNOWN
