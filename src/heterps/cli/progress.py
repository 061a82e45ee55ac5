"""While a method runs: a progress bar on a terminal, and Ctrl-C as a request to finish."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from heterps.cli.terminal_bar import TerminalBar

if TYPE_CHECKING:
    from heterps.planning.schedulers.base import Progress


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


class ProgressBar(TerminalBar):
    """Shows how far a search is, once it takes longer than a second."""

    def __init__(self, title: str, time_budget: float | None) -> None:
        super().__init__(title)
        self.time_budget = time_budget

    def report(self, progress: Progress) -> None:
        if self.due:
            self.show(*self._share(progress, self.elapsed_s), _best(progress))

    def _share(self, progress: Progress, elapsed: float) -> tuple[float, float | None]:
        """Of the search or of the time budget, whichever is further."""
        shares = [elapsed / self.time_budget] if self.time_budget else []
        if progress.total:
            shares.append(progress.done / progress.total)
        return (max(shares), 1.0) if shares else (0.0, None)


def _best(progress: Progress) -> str:
    if progress.cost is None:
        return "no plan yet"
    text = f"best ${progress.cost:.4g}"
    if progress.lower_bound is not None and progress.cost > 0:
        gap = max(0.0, 1 - progress.lower_bound / progress.cost)
        text += f", at most {100 * gap:.2g} % above the optimum"
    return text
