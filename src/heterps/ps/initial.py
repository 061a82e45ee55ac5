"""What a row holds before its first gradient.

A value is a function of (seed, id, column) and nothing else: not of the order in which ids come,
of the number of shards, or of a restart. All arithmetic is on whole numbers up to the last one or
two float32 operations, so the store in C++ gives the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from heterps.errors import InputError
from heterps.ps.sharding import mix64

Floats = npt.NDArray[np.float32]
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Initializer(ABC):
    """Gives the initial rows of ids; ``scale`` is in the unit of the values."""

    name: ClassVar[str]
    scale: float = 0.0

    def __post_init__(self) -> None:
        scale: object = self.scale
        number = isinstance(scale, int | float) and not isinstance(scale, bool)
        if not number or not math.isfinite(self.scale):
            raise InputError("initial.scale", f"expected a finite number, got {scale!r}")

    def rows(self, ids: npt.NDArray[np.int64], dim: int, seed: int) -> Floats:
        """The initial rows of a vector of ids, in its order."""
        return self.values(_hashes(ids, dim, seed))

    @abstractmethod
    def values(self, hashes: npt.NDArray[np.uint64]) -> Floats:
        """The values that belong to the hashes of (seed, id, column)."""


class Zeros(Initializer):
    name = "zeros"

    def values(self, hashes: npt.NDArray[np.uint64]) -> Floats:
        return np.zeros(hashes.shape, np.float32)


class Constant(Initializer):
    """``scale`` everywhere."""

    name = "constant"

    def values(self, hashes: npt.NDArray[np.uint64]) -> Floats:
        return np.full(hashes.shape, self.scale, np.float32)


class Uniform(Initializer):
    """Evenly spread from -``scale`` (included) to ``scale`` (not)."""

    name = "uniform"

    def values(self, hashes: npt.NDArray[np.uint64]) -> Floats:
        u = (hashes >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        return (np.float32(2) * u - np.float32(1)) * np.float32(self.scale)


class Normal(Initializer):
    """Bell-shaped with standard deviation ``scale``, never beyond 6 of them: the sum of 12 evenly
    spread numbers, which needs no logarithm and is therefore the same on every machine.
    """

    name = "normal"

    def values(self, hashes: npt.NDArray[np.uint64]) -> Floats:
        total = np.zeros(hashes.shape, np.int64)
        for k in (1, 2, 3):
            word = mix64(hashes + np.uint64(k * _GOLDEN & _MASK))
            for lane in range(4):
                total += (word >> np.uint64(16 * lane) & np.uint64(0xFFFF)).astype(np.int64)
        return (total - 12 * 65535 // 2).astype(np.float32) * np.float32(self.scale / 65536)


INITIALIZERS: dict[str, type[Initializer]] = {
    kind.name: kind for kind in (Zeros, Constant, Uniform, Normal)
}


def _hashes(ids: npt.NDArray[np.int64], dim: int, seed: int) -> npt.NDArray[np.uint64]:
    """One hash a column for every id."""
    of_seed = mix64(np.array([(seed + _GOLDEN) & _MASK], np.uint64))
    of_row = mix64(of_seed ^ mix64(np.asarray(ids, np.int64).view(np.uint64)))
    columns = np.array([(c + 1) * _GOLDEN & _MASK for c in range(dim)], np.uint64)
    return mix64(of_row[:, None] + columns[None, :])
