"""Which of a caller's ids go to which shard, each once, and how the answers find back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heterps.ps import _native

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Route:
    """``distinct`` ids grouped by shard (``offsets``), in order of their first occurrence;
    ``inverse`` is where each asked id stands among them, None if that is where it was asked for.
    """

    distinct: Ids
    offsets: NDArray[np.int64]
    inverse: NDArray[np.int64] | None

    @property
    def shards(self) -> int:
        return len(self.offsets) - 1

    @property
    def asked(self) -> int:
        """How many ids were given, each as often as it occurs."""
        return len(self.distinct if self.inverse is None else self.inverse)

    def slice_of(self, shard: int) -> slice:
        return slice(int(self.offsets[shard]), int(self.offsets[shard + 1]))

    def spread(self, rows: Floats, out: Floats) -> None:
        """Rows of the distinct ids to all that were asked for."""
        if self.inverse is None:
            out[...] = rows
        else:
            _native.gather(rows, self.inverse, out)

    def sums(self, grads: Floats, out: Floats) -> None:
        """Gradients summed for each distinct id, in order of occurrence."""
        if self.inverse is None:
            out[...] = grads
        else:
            _native.sum_duplicates(grads, self.inverse, out)


def route(ids: Ids, shards: int, *, distinct: bool = False) -> Route:
    """``distinct`` promises that no id occurs twice, which saves looking for those that do."""
    if distinct and shards == 1:
        return Route(ids.copy(), np.array([0, len(ids)]), None)  # it may be sent again later
    return Route(*_native.route(ids, shards, distinct))
