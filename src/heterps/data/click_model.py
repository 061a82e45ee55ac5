"""Criteo-like samples with a planted click model.

Slots hold Zipf-distributed ids, with exponents from 1.05 to 1.2 over the slots; dense columns are
log-normal. The chance of a click is logistic in a weight for each (slot, id), drawn by hash, and in
log1p of the dense values. Rows come in blocks, each a function of the seed and its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from heterps.data.shuffle import key_of, mix64
from heterps.data.zipf import Zipf

BLOCK_ROWS = 65536
POSITIVE_SHARE = 0.25
# Standard deviations of what the slots and the dense columns add to the logit.
_SPARSE_SPREAD, _DENSE_SPREAD = 1.1, 0.7
_WEIGHTS, _DENSE, _CALIBRATION = 11, 12, 1 << 62

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Samples:
    """Rows with the true chance of their label."""

    table: pa.Table
    chance: Floats

    def slice(self, start: int, stop: int) -> Samples:
        return Samples(self.table.slice(start, stop - start), self.chance[start:stop])


@dataclass(frozen=True)
class ClickModel:
    """``missing`` is the share of values that are left out."""

    seed: int = 0
    slots: int = 26
    ids: int = 1_000_000
    dense: int = 13
    missing: float = 0.0

    def section(self) -> dict[str, object]:
        """The part of a job's ``data`` that names the columns."""
        return {"label": "label", "dense": self._dense_names, "sparse": self._slot_names}

    def block(self, number: int) -> Samples:
        rng, logits, columns = self._drawn(number)
        chance = _logistic(logits + self._intercept)
        label = (rng.random(BLOCK_ROWS) < chance).astype(np.int8)
        return Samples(pa.table({"label": label, **columns}), chance)

    @property
    def _dense_names(self) -> list[str]:
        return [f"I{number}" for number in range(1, self.dense + 1)]

    @property
    def _slot_names(self) -> list[str]:
        return [f"C{number}" for number in range(1, self.slots + 1)]

    def _drawn(self, number: int) -> tuple[np.random.Generator, Floats, dict[str, pa.Array]]:
        """The inputs of a block, and their logits but for the intercept."""
        rng = np.random.Generator(np.random.Philox(key=key_of(self.seed, number)))
        logits = np.zeros(BLOCK_ROWS)
        columns: dict[str, pa.Array] = {}
        for index, name in enumerate(self._dense_names):
            columns[name] = self._dense_column(rng, index, logits)
        for index, name in enumerate(self._slot_names):
            columns[name] = self._slot_column(rng, index, logits)
        return rng, logits, columns

    def _dense_column(self, rng: np.random.Generator, index: int, logits: Floats) -> pa.Array:
        values = np.exp(rng.standard_normal(BLOCK_ROWS, np.float32))
        gone = self._gone(rng)
        seen = values if gone is None else np.where(gone, 0, values)
        logits += self._dense_weights[index] * np.log1p(seen)
        return pa.array(values, mask=gone)

    def _slot_column(self, rng: np.random.Generator, index: int, logits: Floats) -> pa.Array:
        ids = self._zipf[index].draw(rng, BLOCK_ROWS)
        gone = self._gone(rng)
        seen = ids if gone is None else np.where(gone, -1, ids)
        key = np.uint64(key_of(self.seed, _WEIGHTS, index))
        share = (mix64(seen.view(np.uint64) ^ key) >> np.uint64(11)) * 2.0**-53
        # evenly spread numbers in [-1, 1) have a standard deviation of 1 / √3
        logits += _SPARSE_SPREAD * np.sqrt(3 / self.slots) * (2 * share - 1)
        return pa.array(ids, mask=gone)

    def _gone(self, rng: np.random.Generator) -> Bools | None:
        return rng.random(BLOCK_ROWS) < self.missing if self.missing else None

    @cached_property
    def _zipf(self) -> list[Zipf]:
        return [Zipf(exponent, self.ids) for exponent in np.linspace(1.05, 1.2, self.slots)]

    @cached_property
    def _dense_weights(self) -> Floats:
        rng = np.random.Generator(np.random.Philox(key=key_of(self.seed, _DENSE)))
        weights = rng.standard_normal(self.dense)
        # log1p of a log-normal number has a standard deviation of 0.57
        scale = _DENSE_SPREAD / 0.57 / max(float(np.sqrt(np.sum(weights**2))), 1e-9)
        return weights * scale

    @cached_property
    def _intercept(self) -> float:
        """So that about a quarter of the labels are positive: by bisection on a block that is not
        part of any data set.
        """
        _, logits, _ = self._drawn(_CALIBRATION)
        low, high = -20.0, 20.0
        for _ in range(50):
            middle = (low + high) / 2
            if _logistic(logits + middle).mean() < POSITIVE_SHARE:
                low = middle
            else:
                high = middle
        return middle


def _logistic(logits: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-logits))
    return chance
