"""A progress bar for work that is counted in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heterps.cli.terminal_bar import TerminalBar

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class RowsBar(TerminalBar):
    """``report`` takes how many rows are done, of how many."""

    patience_s = 0.5

    def report(self, done: int, total: int) -> None:
        if self.due:
            self.show(done, total, f"{done:,} rows, {done / self.elapsed_s:,.0f} a second")

    def columns(self) -> tuple[ProgressColumn, ...]:
        from rich.progress import TextColumn, TimeRemainingColumn

        return TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn()
