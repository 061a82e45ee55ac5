"""Samples to write into files."""

from __future__ import annotations

from heterps.data.criteo import DENSE, SPARSE


def criteo_line(label: int, first: str = "1", category: str = "68fd1e64") -> str:
    """A line with 13 numbers, of which the first is given, and 26 texts."""
    numbers = [first, *(str(i) for i in range(2, len(DENSE) + 1))]
    texts = [category, *(f"{i:08x}" for i in range(2, len(SPARSE) + 1))]
    return "\t".join([str(label), *numbers, *texts]) + "\n"
