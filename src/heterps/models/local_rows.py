"""Sparse tables in this process: for a single-process loop, and for predicting without servers.

They give the rows and learn by the rules of the parameter servers, to the bit in float32. Written
for clarity: a dictionary of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heterps.errors import InputError, UnknownNameError

Array = NDArray[Any]
Initial = Literal["zeros", "constant", "uniform", "normal"]
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_RULES = ("sgd", "adagrad", "rowwise_adagrad")
_INITIALS = ("zeros", "constant", "uniform", "normal")


@dataclass
class LocalTable:
    """Rows of ``dim`` numbers by id, made when they first get a gradient.

    ``dtype`` float64 starts from the same float32 rows and computes on in double precision.
    """

    dim: int
    rule: str = "rowwise_adagrad"
    lr: float = 0.05
    initial: Initial = "uniform"
    scale: float = 0.01
    seed: int = 0
    eps: float = 1e-10
    initial_accumulator: float = 0.0
    dtype: torch.dtype = torch.float32
    step: int = field(default=0, init=False)
    rows: dict[int, Array] = field(default_factory=dict, init=False, repr=False)
    state: dict[int, Array] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rule not in _RULES:
            raise UnknownNameError("rule", "rule", self.rule, _RULES)
        if self.initial not in _INITIALS:
            raise UnknownNameError("initial", "initial", self.initial, _INITIALS)
        if self.dtype not in (torch.float32, torch.float64):
            raise InputError("dtype", f"expected float32 or float64, got {self.dtype}")
        self._float = np.float32 if self.dtype == torch.float32 else np.float64
        self._parts: dict[tuple[int, int], tuple[Array, Array]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def pull(self, ids: Tensor) -> Tensor:
        """The rows of ``ids``, in their order. Leaves no trace."""
        return torch.from_numpy(self._pulled(ids.numpy()))

    def push(self, ids: Tensor, grads: Tensor, lr: float | None = None) -> None:
        """One step of the rule; gradients of an id that occurs more than once are summed."""
        self._apply(*self._summed(ids.numpy(), grads.detach().numpy()), lr)

    def accumulate(self, part: tuple[int, int], ids: Tensor, grads: Tensor) -> None:
        """Keep the gradients of one (micro-batch, layer) until ``commit``."""
        self._parts[part] = self._summed(ids.numpy(), grads.detach().numpy())

    def commit(self, lr: float | None = None) -> None:
        """One step with the sum over the parts, taken in ascending order of (batch, layer)."""
        parts = [self._parts[part] for part in sorted(self._parts)]
        ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in parts)])
        none = np.empty((0, self.dim), self._float)
        grads = np.concatenate([none, *(grads for _, grads in parts)])
        self._parts.clear()
        self._apply(*self._summed(ids, grads), lr)

    def _pulled(self, ids: Array) -> Array:
        values = initial_rows(ids, self.dim, self.seed, self.initial, self.scale)
        values = values.astype(self._float)
        for place, key in enumerate(ids.tolist()):
            if key in self.rows:
                values[place] = self.rows[key]
        return values

    def _summed(self, ids: Array, grads: Array) -> tuple[Array, Array]:
        """Each id once with the sum of its gradients, added up in their order."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        # The first gradient of an id is taken as it is: 0 + -0 would change its sign.
        sums = np.full((len(distinct), self.dim), -0.0, self._float)
        np.add.at(sums, inverse, grads.astype(self._float))
        return distinct, sums

    def _apply(self, ids: Array, grads: Array, lr: float | None) -> None:
        self.step += 1
        values = self._pulled(ids)
        width = {"sgd": 0, "adagrad": self.dim}.get(self.rule, 1)
        start = np.full(width, self.initial_accumulator, self._float)
        keys = ids.tolist()
        state = np.array([self.state.get(key, start) for key in keys], self._float)
        state = state.reshape(len(keys), width)
        self._rule(values, state, grads, self._float(self.lr if lr is None else lr))
        # Copies: a view would keep the rows of the whole batch in memory.
        self.rows.update((key, row.copy()) for key, row in zip(keys, values, strict=True))
        self.state.update((key, row.copy()) for key, row in zip(keys, state, strict=True))

    def _rule(self, values: Array, state: Array, grads: Array, lr: Any) -> None:
        eps = self._float(self.eps)
        if self.rule == "sgd":
            values -= lr * grads
        elif self.rule == "adagrad":
            state += grads * grads
            values -= lr * (grads / (np.sqrt(state) + eps))
        else:
            state += _mean_square(grads)[:, None]
            values -= (lr / (np.sqrt(state) + eps)) * grads


class LocalRows:
    """Tables by name: the row source of a single process."""

    def __init__(self, tables: Mapping[str, LocalTable]) -> None:
        self.tables = dict(tables)

    def pull(self, table: str, ids: Tensor) -> Tensor:
        if table not in self.tables:
            raise UnknownNameError("table", "table", table, self.tables)
        return self.tables[table].pull(ids)


def initial_rows(ids: Array, dim: int, seed: int, initial: Initial, scale: float) -> Array:
    """What rows hold before their first gradient: float32, a function of (seed, id, column)."""
    if initial == "zeros" or initial == "constant":
        return np.full((len(ids), dim), scale if initial == "constant" else 0, np.float32)
    of_seed = _mix(np.array([(seed + _GOLDEN) & _WORD], np.uint64))
    of_row = _mix(of_seed ^ _mix(np.ascontiguousarray(ids, np.int64).view(np.uint64)))
    columns = np.array([(column + 1) * _GOLDEN & _WORD for column in range(dim)], np.uint64)
    words = _mix(of_row[:, None] + columns)
    if initial == "uniform":
        share = (words >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)  # in [0, 1), exact
        spread: Array = (np.float32(2) * share - np.float32(1)) * np.float32(scale)
        return spread
    return _bell(words) * np.float32(scale / 65536)


def _bell(words: Array) -> Array:
    """The sum of twelve evenly spread 16-bit numbers about their mean: whole numbers, exact."""
    total = np.full(words.shape, -12 * 65535 // 2, np.int64)
    for number in (1, 2, 3):
        drawn = _mix(words + np.uint64(number * _GOLDEN & _WORD))
        for shift in (0, 16, 32, 48):
            total += (drawn >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
    return total.astype(np.float32)


def _mix(words: Array) -> Array:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = words ^ (words >> np.uint64(31))
    return mixed


def _mean_square(grads: Array) -> Array:
    """Summed in eight lanes of every eighth column, as the servers' vectors do it."""
    squares = np.zeros((len(grads), -(-grads.shape[1] // 8) * 8), grads.dtype)
    squares[:, : grads.shape[1]] = grads * grads
    lanes = np.zeros((len(grads), 8), grads.dtype)
    for first in range(0, squares.shape[1], 8):
        lanes += squares[:, first : first + 8]
    pairs = lanes[:, :4] + lanes[:, 4:]
    total = (pairs[:, 0] + pairs[:, 2]) + (pairs[:, 1] + pairs[:, 3])
    mean: Array = total / grads.dtype.type(grads.shape[1])
    return mean
