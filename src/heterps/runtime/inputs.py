"""Micro-batches on their way into a stage: arrived, their rows asked for, ready."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor

from heterps.data.prefetch import Prefetch
from heterps.models.batch import Batch
from heterps.models.context import Context
from heterps.models.rows import Asked
from heterps.runtime.lookups import Lookup, Lookups
from heterps.runtime.meter import Spans
from heterps.wire.wake import Wake


class Input(NamedTuple):
    arrived: Batch
    asked: dict[str, Asked]


class Inputs:
    """``wake`` is set when one becomes ready, which other threads find out. ``pulls`` are the times
    in which rows were under way, but for what servers wait with them for a commit here: batch b
    sees the commit of b - 1 - ``staleness``."""

    def __init__(self, lookups: Lookups, wake: Wake, staleness: int = 0) -> None:
        self.pulls = Spans()
        self._staleness = staleness
        self._committed_at: dict[int, float] = {}
        self._committed = -1
        self._lookups = lookups
        self.wake = wake
        self._coming: dict[int, tuple[Batch, Lookup]] = {}
        self._ready: deque[int] = deque()

    def __len__(self) -> int:
        """Those that have arrived and were not taken."""
        return len(self._coming)

    def add(self, number: int, batch: int | None, arrived: Batch, context: Context) -> None:
        """``batch`` is the one whose view of the tables is wanted; None: as they are."""
        began = time.perf_counter()

        def ready() -> None:
            self._note(batch, began)
            self._ready.append(number)
            self.wake.set()

        # The rows may be there before this returns: nobody looks until the next ``ready``.
        self._coming[number] = (arrived, self._lookups.begin(batch, arrived, context, ready))

    def __contains__(self, number: object) -> bool:
        return number in self._coming

    def committed(self, batch: int) -> None:
        """A batch has been, here."""
        self._committed = batch
        self._committed_at[batch] = time.perf_counter()
        self._committed_at.pop(batch - 2 - self._staleness, None)

    def _note(self, batch: int | None, began: float) -> None:
        if batch is None:
            return
        now, seen = time.perf_counter(), batch - 1 - self._staleness
        # Rows that are there before this replica has committed keep nobody waiting.
        early = self._committed_at and seen > self._committed
        opened = now if early else self._committed_at.get(seen, 0.0)
        self.pulls.add(max(began, opened), now)

    def ready(self) -> Iterator[int]:
        """Those that have become ready since the last call."""
        while self._ready:
            yield self._ready.popleft()

    def row_bytes(self, number: int) -> int:
        """Of a ready one: its ids, and the rows that came for them."""
        return self._coming[number][1].row_bytes

    def take(self, number: int) -> Input:
        """Raises what went wrong with its rows."""
        arrived, lookup = self._coming.pop(number)
        return Input(arrived, lookup.asked())


class Feed:
    """The first stage's own micro-batches, in order, as far as they are read."""

    def __init__(
        self,
        reader: Prefetch,
        numbers: Iterator[int],
        convert: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    ) -> None:
        self._reader = reader
        self._numbers = numbers
        self._convert = convert
        self._next: int | None = next(numbers, None)

    def take(self, before: int) -> tuple[int, dict[str, Tensor]] | None:
        """The next one below ``before``, or None if there is none, or it has yet to be read."""
        if self._next is None or self._next >= before or not self._reader.is_read(self._next):
            return None
        number = self._next
        batch = self._reader.micro_batch(number)
        self._next = next(self._numbers, None)
        return number, self._convert(batch)
