"""How much weight of two kinds stands at each of some 100,000 places, of which few are used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_MOST_WAITING = 1 << 16


class Histogram:
    """Takes no more memory than the places that were used, and little time to add to: what was
    added is put together only now and then.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Places, Floats, Floats]] = []
        self._entries = 0
        self._held = 0  # of the entries: those that are together already

    def add(self, places: Places, positive: Floats, negative: Floats) -> None:
        """The arrays belong to the histogram from now on."""
        self._waiting.append((places, positive, negative))
        self._entries += len(places)
        if self._entries > 2 * self._held + _MOST_WAITING:
            self.columns()

    def columns(self) -> tuple[Places, Floats, Floats]:
        """Each place that was used once, ascending, with its weights."""
        if len(self._waiting) != 1 or self._held != self._entries:
            none = (np.empty(0, np.int32), np.empty(0), np.empty(0))
            columns = zip(none, *self._waiting, strict=True)
            places, positive, negative = (np.concatenate(column) for column in columns)
            low = places.min(initial=0)
            used = np.flatnonzero(np.bincount(places - low))
            positive, negative = (_sums(places - low, w)[used] for w in (positive, negative))
            self._waiting = [((used + low).astype(np.int32), positive, negative)]
            self._entries = self._held = len(used)
        return self._waiting[0]


def _sums(places: Places, weights: Floats) -> Floats:
    sums: Floats = np.bincount(places, weights).astype(np.float64, copy=False)
    return sums
