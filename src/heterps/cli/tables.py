"""Text and tables: rich on a terminal, plain and aligned anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of text under titles; the columns named in ``left`` are aligned to the left."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()

    def plain(self) -> str:
        lines = [self.titles, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.titles))]
        return "\n".join(self._aligned(line, widths) for line in lines)

    def _aligned(self, line: Sequence[str], widths: Sequence[int]) -> str:
        cells = (
            cell.ljust(width) if title in self.left else cell.rjust(width)
            for title, cell, width in zip(self.titles, line, widths, strict=True)
        )
        return "  ".join(cells).rstrip()


def print_table(table: Table) -> None:
    if not sys.stdout.isatty():
        print(table.plain())
        return
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, header_style="bold underline")
    for title in table.titles:
        drawn.add_column(title, justify="left" if title in table.left else "right")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def print_heading(text: str) -> None:
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text, style="bold"))


def money(dollars: float) -> str:
    """Four significant digits, or cents where that is more."""
    return f"${dollars:,.2f}" if abs(dollars) >= 100 else f"${dollars:.4g}"


def rate(samples_per_s: float | None) -> str:
    if samples_per_s is None:
        return "unbounded"
    return f"{samples_per_s:,.0f}" if samples_per_s >= 1000 else f"{samples_per_s:.4g}"


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def duration(seconds: float) -> str:
    """For one batch or one search: the unit fits the size."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us" if seconds > 0 else "0"


def long_duration(seconds: float) -> str:
    """For a training run."""
    hours = f"{seconds / 3600:.4g} h"
    return hours if seconds >= 3600 else f"{hours} ({seconds:.3g} s)"
