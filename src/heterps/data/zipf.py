"""Zipf-distributed numbers without tables.

Rejection-inversion (Hörmann and Derflinger, 1996): the distribution is inverted as if it were
continuous, and the few draws that this gives too often are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from heterps.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Zipf:
    """Rank k = 0, 1, … ``size`` - 1 with probability proportional to (k + 1)^-``exponent``."""

    exponent: float
    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError("ids", f"expected 1 or more, got {self.size}")
        if not self.exponent > 0 or self.exponent == 1:
            raise InputError("exponent", f"expected more than 0 and not 1, got {self.exponent:g}")

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        ranks, accepted = self._propose(rng, count)
        left = np.flatnonzero(~accepted)
        while len(left):
            ranks[left], accepted = self._propose(rng, len(left))
            left = left[~accepted]
        return ranks - 1

    def log_probability(self, ranks: npt.NDArray[np.int64]) -> Floats:
        logarithm: Floats = -self.exponent * np.log(ranks + 1.0) - self._log_total
        return logarithm

    def _propose(
        self, rng: np.random.Generator, count: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        low, high, shortcut = self._bounds
        area = high + rng.random(count) * (low - high)
        place = self._inverse(area)
        nearest = np.clip(np.rint(place), 1, self.size)
        accepted = nearest - place <= shortcut
        unsure = np.flatnonzero(~accepted)
        k = nearest[unsure]
        accepted[unsure] = area[unsure] >= self._integral(k + 0.5) - k**-self.exponent
        return nearest.astype(np.int64), accepted

    @cached_property
    def _bounds(self) -> tuple[float, float, float]:
        one_and_half, two_and_half, end = self._integral(np.array([1.5, 2.5, self.size + 0.5]))
        second = self._inverse(np.array([two_and_half - 2.0**-self.exponent]))
        return float(one_and_half - 1), float(end), float(2 - second[0])

    @cached_property
    def _log_total(self) -> float:
        return float(np.log(np.sum(np.arange(1.0, self.size + 1) ** -self.exponent)))

    def _integral(self, x: Floats) -> Floats:
        power = 1 - self.exponent
        area: Floats = np.expm1(power * np.log(x)) / power
        return area

    def _inverse(self, area: Floats) -> Floats:
        power = 1 - self.exponent
        place: Floats = np.exp(np.log1p(power * area) / power)
        return place
