"""A progress bar that only a person at a terminal sees, and only where there is time to look."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn


class TerminalBar:
    """Appears after ``patience_s``, and goes at the end of its ``with`` block."""

    patience_s = 1.0

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def due(self) -> bool:
        """Whether there is anything to show, and anyone to see it."""
        return self.elapsed_s >= self.patience_s and sys.stderr.isatty()

    def show(self, done: float, total: float | None, note: str) -> None:
        if self._bar is None:
            self._bar = self._new_bar()
            self._bar.add_task(self.title, total=total, note="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, note=note)

    def columns(self) -> tuple[ProgressColumn, ...]:
        """What stands between the bar and the note."""
        from rich.progress import TimeElapsedColumn

        return (TimeElapsedColumn(),)

    def _new_bar(self) -> Bar:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        title, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
        columns = (title, BarColumn(), *self.columns(), note)
        return Bar(*columns, console=Console(stderr=True), transient=True)
