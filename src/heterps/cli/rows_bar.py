"""A progress bar for work that is counted in rows, on a terminal only."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_PATIENCE_S = 0.5  # what takes no longer than this shows no bar


class RowsBar:
    """``report`` takes how many rows are done, of how many."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.bar: Bar | None = None

    def __enter__(self) -> RowsBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def report(self, done: int, total: int) -> None:
        elapsed = time.monotonic() - self.started
        if not sys.stderr.isatty() or elapsed < _PATIENCE_S:
            return
        if self.bar is None:
            self.bar = _new_bar()
            self.bar.add_task(self.title, total=total, rate="")
            self.bar.start()
        rate = f"{done:,} rows, {done / elapsed:,.0f} a second"
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, rate=rate)


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)
