"""Samples to write into files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from heterps.data.criteo import DENSE, SPARSE


def criteo_line(label: int, first: str = "1", category: str = "68fd1e64") -> str:
    """A line with 13 numbers, of which the first is given, and 26 texts."""
    numbers = [first, *(str(i) for i in range(2, len(DENSE) + 1))]
    texts = [category, *(f"{i:08x}" for i in range(2, len(SPARSE) + 1))]
    return "\t".join([str(label), *numbers, *texts]) + "\n"


def with_texts(source: Path | str, slot: str, out: Path) -> Path:
    """A Parquet file again, with texts for the whole numbers of a slot; ``out``."""
    table = pq.read_table(source)
    column = table.column_names.index(slot)
    pq.write_table(table.set_column(column, slot, table[slot].cast(pa.string())), out)
    return out
