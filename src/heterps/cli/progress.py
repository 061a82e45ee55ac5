"""While a method runs: a progress bar on a terminal, and Ctrl-C as a request to finish."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from heterps.planning.schedulers.base import Progress

_PATIENCE_S = 1.0  # what takes no longer than this shows no bar


class Interrupt:
    """The first Ctrl-C makes ``stop`` answer true, the second one ends the command."""

    def __init__(self) -> None:
        self.asked = False

    def stop(self) -> bool:
        return self.asked

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if sys.stderr.isatty():
            print("\nstopping with the best so far; Ctrl-C again to abort", file=sys.stderr)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Signals reach the main thread only; in another nothing is watched."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class ProgressBar:
    """Shows how far a search is, once it takes longer than a second, on a terminal only."""

    def __init__(self, title: str, time_budget: float | None) -> None:
        self.title = title
        self.time_budget = time_budget
        self.started = time.monotonic()
        self.bar: Bar | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def report(self, progress: Progress) -> None:
        elapsed = time.monotonic() - self.started
        if elapsed < _PATIENCE_S or not sys.stderr.isatty():
            return
        if self.bar is None:
            self.bar = _new_bar()
            self.bar.add_task(self.title, total=None, best="")
            self.bar.start()
        done, total = self._share(progress, elapsed)
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, best=_best(progress))

    def _share(self, progress: Progress, elapsed: float) -> tuple[float, float | None]:
        """Of the search or of the time budget, whichever is further."""
        shares = [elapsed / self.time_budget] if self.time_budget else []
        if progress.total:
            shares.append(progress.done / progress.total)
        return (max(shares), 1.0) if shares else (0.0, None)


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[best]}"),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)


def _best(progress: Progress) -> str:
    if progress.cost is None:
        return "no plan yet"
    text = f"best ${progress.cost:.4g}"
    if progress.lower_bound is not None and progress.cost > 0:
        gap = max(0.0, 1 - progress.lower_bound / progress.cost)
        text += f", at most {100 * gap:.2g} % above the optimum"
    return text
