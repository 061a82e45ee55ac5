"""Micro-batches of the lanes that a replica owns."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from heterps.data.batch import Batch, Slice, make_batch
from heterps.data.columns import Columns
from heterps.data.dataset import Dataset
from heterps.data.lane_plan import Span
from heterps.data.lanes import Lanes
from heterps.data.read_ahead import ReadAhead

CACHE_BYTES = 512 << 20
_Key = tuple[int, int]  # epoch, row group


class LaneReader:
    """Reads any micro-batch of its lanes; the ones in rising order at little cost.

    A row group that one of its lanes is reading stays decoded, and so does one that another of them
    has still to read, up to ``cache_bytes`` in all: past that it is read again. Remote ones are
    fetched ahead, none of micro-batch ``stop`` and later. For one thread.
    """

    def __init__(
        self,
        data: Dataset,
        lanes: Lanes,
        owned: Collection[int],
        *,
        cache_bytes: int = CACHE_BYTES,
        stop: int | None = None,
    ) -> None:
        self._data = data
        self._lanes = lanes
        self._owned = tuple(sorted(set(owned)))
        self._cache_bytes = cache_bytes
        self._held: dict[_Key, Columns] = {}  # the one used last stands last
        self._open: dict[int, _Key] = {}  # of each lane: the row group that it is in
        self._passed: dict[int, Span] = {}  # of each lane: what was read last
        self._ahead = ReadAhead(data, lanes, self._owned, stop=stop)

    def numbers(self, start: int = 0) -> Iterator[int]:
        """The micro-batches of its lanes from ``start`` on, without end."""
        return self._lanes.plan.owned(self._owned, start)

    def micro_batch(self, j: int) -> Batch:
        """Raises InputError with the name of the file that cannot be read."""
        plan = self._lanes.plan
        lane, span = plan.lane_of(j), plan.span_of(j)
        assert lane in self._owned, f"micro-batch {j} is on lane {lane}, not on {self._owned}"
        self._ahead.move_to(j)
        slices = []
        pieces = self._lanes.pieces(span)
        for group, start, stop in pieces:
            self._open[lane] = (span.epoch, group)
            slices.append(Slice(self._columns(span.epoch, group), start, stop))
        self._passed[lane] = span
        end = plan.lane_span(span.epoch, lane).stop
        for group, _, stop in pieces:
            if stop == self._lanes.sizes[group] or span.stop == end:
                self._drop_if_done(span.epoch, group)
        return make_batch(slices)

    @property
    def held_bytes(self) -> int:
        """What is decoded now."""
        return sum(columns.size_bytes for columns in self._held.values())

    def _columns(self, epoch: int, group: int) -> Columns:
        key = (epoch, group)
        columns = self._held.pop(key, None)
        if columns is None:
            order = self._lanes.rows(epoch, group) if self._lanes.shuffle else None
            self._ahead.take(key)
            columns = self._data.read(group, order)
            self._make_room(columns.size_bytes)
        self._held[key] = columns
        return columns

    def _make_room(self, size_bytes: int) -> None:
        """Lets go of what was used longest ago, but of no row group that a lane is in."""
        excess = self.held_bytes + size_bytes - self._cache_bytes
        in_use = set(self._open.values())
        for key in [key for key in self._held if key not in in_use]:
            if excess <= 0:
                return
            excess -= self._held.pop(key).size_bytes

    def _drop_if_done(self, epoch: int, group: int) -> None:
        extent = self._lanes.extent(epoch, group)
        if not any(self._has_to_read(lane, extent) for lane in self._owned):
            self._held.pop((epoch, group), None)

    def _has_to_read(self, lane: int, extent: Span) -> bool:
        """Whether any of these samples is still to come on a lane."""
        mine = self._lanes.plan.lane_span(extent.epoch, lane)
        start, stop = max(mine.start, extent.start), min(mine.stop, extent.stop)
        passed = self._passed.get(lane)
        if passed is None or passed.epoch < extent.epoch:
            return start < stop
        return passed.epoch == extent.epoch and start < stop and passed.stop < stop
