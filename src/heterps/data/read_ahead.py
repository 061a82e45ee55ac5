"""Row groups of remote files, fetched before a reader asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from heterps.data.lanes import Lanes

MOST_GROUPS, MOST_BYTES = 4, 64 << 20
Key = tuple[int, int]  # epoch, row group


class Announced(Protocol):
    """What is read: see GroupedFile for what the two do."""

    def announce(self, row_group: int) -> int: ...
    def forget(self, row_group: int) -> None: ...


class ReadAhead:
    """Announces the row groups that come next on the given lanes: a few of them, and no more bytes
    than ``most_bytes`` but for one. Nothing is read from micro-batch ``stop`` on.
    """

    def __init__(
        self,
        data: Announced,
        lanes: Lanes,
        owned: Collection[int],
        *,
        stop: int | None = None,
        most_groups: int = MOST_GROUPS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._data = data
        self._lanes = lanes
        self._owned = owned
        self._stop = stop
        self._most_groups = most_groups
        self._most_bytes = most_bytes
        self._coming: dict[Key, int] = {}  # announced and not taken, with their bytes
        self._seen: set[Key] = set()
        self._keys: Iterator[Key] = iter(())
        self._last = -1
        self._useful = True

    def move_to(self, j: int) -> None:
        """Micro-batch j is read next: a step back or far ahead starts anew."""
        last, self._last = self._last, j
        if 0 <= last <= j <= last + self._lanes.plan.lanes or not self._useful:
            return
        for _, group in self._coming:
            self._data.forget(group)
        self._coming.clear()
        self._seen.clear()
        self._keys = self._keys_from(j)

    def take(self, key: Key) -> None:
        """A row group is read now."""
        self._coming.pop(key, None)
        self._seen.add(key)
        while self._useful and self._has_room():
            following = next(self._keys, None)
            if following is None:
                return
            if following not in self._seen:
                self._seen.add(following)
                self._coming[following] = self._data.announce(following[1])
                self._useful = self._coming[following] > 0

    def _has_room(self) -> bool:
        few = len(self._coming) < self._most_groups
        return not self._coming or (few and sum(self._coming.values()) < self._most_bytes)

    def _keys_from(self, j: int) -> Iterator[Key]:
        """In the order of need, many of them several times."""
        epoch = -1
        for number in self._lanes.plan.owned(self._owned, j):
            if self._stop is not None and number >= self._stop:
                return
            span = self._lanes.plan.span_of(number)
            if span.epoch > epoch:
                epoch = span.epoch
                self._seen = {key for key in self._seen if key[0] >= epoch - 1}
            yield from ((epoch, piece.row_group) for piece in self._lanes.pieces(span))
