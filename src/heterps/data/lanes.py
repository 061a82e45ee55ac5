"""Which rows of which row groups micro-batch j holds.

Each epoch puts the row groups in an order drawn by (seed, epoch), and the rows of a row group in
one drawn by (seed, epoch, row group). A row group on a cut between two lanes is read by both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heterps.data.lane_plan import LanePlan, Span
from heterps.data.shuffle import key_of, permutation

_GROUPS, _ROWS = 1, 2  # what a permutation is for


class Piece(NamedTuple):
    """Rows ``start`` up to ``stop`` of a row group, counted in its order of that epoch."""

    row_group: int
    start: int
    stop: int


class _EpochOrder(NamedTuple):
    row_groups: list[int]
    starts: list[int]  # where each begins in the order of the epoch, and the end
    places: list[int]  # of each row group in that order


class Lanes:
    """The lanes over row groups of the given sizes. Without ``shuffle`` everything stays in the
    order of the files, as validation wants it.
    """

    def __init__(
        self, plan: LanePlan, sizes: Sequence[int], seed: int = 0, *, shuffle: bool = True
    ) -> None:
        assert sum(sizes) == plan.samples
        self.plan = plan
        self.sizes = list(sizes)
        self.seed = seed
        self.shuffle = shuffle
        self._order = lru_cache(maxsize=2)(self._drawn_order)

    def pieces_of(self, j: int) -> list[Piece]:
        """Where the samples of micro-batch j stand, in their order."""
        return self.pieces(self.plan.span_of(j))

    def pieces(self, span: Span) -> list[Piece]:
        order = self._order(span.epoch)
        index = bisect_right(order.starts, span.start) - 1
        pieces: list[Piece] = []
        position = span.start
        while position < span.stop:
            begin, end = order.starts[index], order.starts[index + 1]
            stop = min(end, span.stop)
            if stop > position:
                pieces.append(Piece(order.row_groups[index], position - begin, stop - begin))
            position, index = stop, index + 1
        return pieces

    def extent(self, epoch: int, row_group: int) -> Span:
        """The samples of a row group."""
        order = self._order(epoch)
        place = order.places[row_group]
        return Span(epoch, order.starts[place], order.starts[place + 1])

    def rows(self, epoch: int, row_group: int) -> npt.NDArray[np.int64]:
        """The order of the rows of a row group."""
        size = self.sizes[row_group]
        if not self.shuffle:
            return np.arange(size)
        return permutation(size, key_of(self.seed, _ROWS, epoch, row_group))

    def _drawn_order(self, epoch: int) -> _EpochOrder:
        groups = np.arange(len(self.sizes))
        if self.shuffle:
            groups = permutation(len(self.sizes), key_of(self.seed, _GROUPS, epoch))
        starts = np.concatenate([[0], np.cumsum(np.array(self.sizes, np.int64)[groups])])
        return _EpochOrder(groups.tolist(), starts.tolist(), np.argsort(groups).tolist())
