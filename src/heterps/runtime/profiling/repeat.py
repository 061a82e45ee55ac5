"""Measuring again and again, until it is known well enough."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

_WARM_UP, _LEAST, _MOST = 3, 8, 200
_CLOSE = 0.02  # how well the median has to be known, relative


def repeat(
    measure: Callable[[], Sequence[float]], most_s: float = 3.0, *, quickest: float = 0.5
) -> tuple[list[float], float]:
    """The median of each time that ``measure`` gives, or what that share of them stays below, and
    the relative spread of their sum (half the distance of the quartiles). It is repeated until the
    sum is known to 2 %, or for ``most_s``."""
    for _ in range(_WARM_UP):
        measure()
    began = time.monotonic()
    taken: list[list[float]] = []
    while len(taken) < _MOST:
        taken.append(list(measure()))
        late = time.monotonic() - began > most_s
        if len(taken) >= (3 if late else _LEAST) and (late or _known(taken)):
            break
    columns = [sorted(column) for column in zip(*taken, strict=True)]
    typical = [column[math.floor(quickest * (len(column) - 1))] for column in columns]
    return typical, _spread([sum(each) for each in taken])


def _known(taken: Sequence[Sequence[float]]) -> bool:
    return _spread([sum(each) for each in taken]) / math.sqrt(len(taken)) < _CLOSE


def _spread(sums: Sequence[float]) -> float:
    low, middle, high = statistics.quantiles(sums, n=4)
    return (high - low) / 2 / middle if middle else 0.0
