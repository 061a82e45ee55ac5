"""How a gradient changes a row: the optimizers that run inside the parameter server.

A rule is a frozen value: its learning rate and its options. The store applies it in C++; ``apply``
here is the same in numpy, operation by operation in float32, and is what the store is tested
against. Scalars such as 1 - beta1 are computed in double precision and rounded once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from heterps.errors import InputError, UnknownNameError

Floats = npt.NDArray[np.float32]
f32 = np.float32


@dataclass(frozen=True)
class Rule(ABC):
    """Changes rows and their state in place, given one gradient a row.

    ``state`` is [rows, ``state_width(dim)``]; ``step`` counts the pushes of the whole table, this
    one included. A row's result depends on that row alone.
    """

    name: ClassVar[str]
    lr: float = 0.01

    def __post_init__(self) -> None:
        for key, value in self.options().items():
            _check(key, value)
        self.check_lr(self.lr)

    def check_lr(self, lr: object) -> float:
        """A learning rate that this rule can work with."""
        return _check("lr", lr)

    def options(self) -> dict[str, float]:
        """All settings but the learning rate, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "lr"}

    @abstractmethod
    def state_width(self, dim: int) -> int:
        """How many floats of state stand beside a row."""

    def initial_state(self, dim: int) -> Floats:
        """The state of a row that has had no gradient."""
        return np.zeros(self.state_width(dim), np.float32)

    @abstractmethod
    def apply(self, values: Floats, state: Floats, grads: Floats, lr: float, step: int) -> None:
        """Apply one gradient to each row."""


@dataclass(frozen=True)
class Sgd(Rule):
    name = "sgd"
    lr: float = 0.01

    def state_width(self, dim: int) -> int:
        return 0

    def apply(self, values: Floats, state: Floats, grads: Floats, lr: float, step: int) -> None:
        values -= f32(lr) * grads


@dataclass(frozen=True)
class Adagrad(Rule):
    """Every element has its own sum of squared gradients."""

    name = "adagrad"
    lr: float = 0.01
    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def state_width(self, dim: int) -> int:
        return dim

    def initial_state(self, dim: int) -> Floats:
        return np.full(dim, self.initial_accumulator, np.float32)

    def apply(self, values: Floats, state: Floats, grads: Floats, lr: float, step: int) -> None:
        state += grads * grads
        values -= f32(lr) * (grads / (np.sqrt(state) + f32(self.eps)))


@dataclass(frozen=True)
class RowwiseAdagrad(Rule):
    """One sum a row, of the mean squared gradient: 4 bytes of state whatever the dimension."""

    name = "rowwise_adagrad"
    lr: float = 0.05
    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def state_width(self, dim: int) -> int:
        return 1

    def initial_state(self, dim: int) -> Floats:
        return np.full(1, self.initial_accumulator, np.float32)

    def apply(self, values: Floats, state: Floats, grads: Floats, lr: float, step: int) -> None:
        state += mean_square(grads)[:, None]
        values -= (f32(lr) / (np.sqrt(state) + f32(self.eps))) * grads


@dataclass(frozen=True)
class Adam(Rule):
    """Rows without a gradient keep their moments; the bias correction goes by the table's step."""

    name = "adam"
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta1", "beta2"):
            if getattr(self, key) >= 1:
                raise InputError(key, f"expected less than 1, got {getattr(self, key)!r}")

    def state_width(self, dim: int) -> int:
        return 2 * dim

    def apply(self, values: Floats, state: Floats, grads: Floats, lr: float, step: int) -> None:
        m, v = np.split(state, 2, axis=1)
        m += f32(1 - self.beta1) * (grads - m)
        v += f32(1 - self.beta2) * (grads * grads - v)
        size = lr * math.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
        values -= f32(size) * (m / (np.sqrt(v) + f32(self.eps)))


@dataclass(frozen=True)
class Ftrl(Rule):
    """FTRL-Proximal: with ``l1`` above 0 weights that matter little are exactly 0."""

    name = "ftrl"
    lr: float = 0.05
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0

    def check_lr(self, lr: object) -> float:
        if not _check("lr", lr):
            raise InputError("lr", "ftrl divides by it: expected more than 0")
        return _check("lr", lr)

    def state_width(self, dim: int) -> int:
        return 2 * dim

    def apply(self, values: Floats, state: Floats, grads: Floats, lr: float, step: int) -> None:
        z, n = np.split(state, 2, axis=1)
        grown = n + grads * grads
        sigma = (np.sqrt(grown) - np.sqrt(n)) / f32(lr)
        z[:] = (z + grads) - sigma * values
        n[:] = grown
        scale = (f32(self.beta) + np.sqrt(n)) / f32(lr) + f32(self.l2)
        shrunk = -(z - np.sign(z) * f32(self.l1)) / scale
        values[:] = np.where(np.abs(z) <= f32(self.l1), f32(0), shrunk)


RULES: dict[str, type[Rule]] = {
    kind.name: kind for kind in (Sgd, Adagrad, RowwiseAdagrad, Adam, Ftrl)
}


def make_rule(rule: str | Rule, lr: float | None = None) -> Rule:
    """A rule by name, or as it is, with another learning rate if one is given."""
    if isinstance(rule, str):
        if rule not in RULES:
            raise UnknownNameError("rule", "rule", rule, RULES)
        return RULES[rule]() if lr is None else RULES[rule](lr=lr)
    if not isinstance(rule, Rule):
        raise InputError("rule", f"expected a name or a Rule, got {type(rule).__name__}")
    return rule if lr is None else type(rule)(**{**rule.options(), "lr": lr})


def _check(path: str, value: object) -> float:
    number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise InputError(path, f"expected a finite number of 0 or more, got {value!r}")
    return float(value)  # type: ignore[arg-type]


def mean_square(grads: Floats) -> Floats:
    """The mean of the squares of each row, summed in eight lanes as the store's vectors do it."""
    squares = grads * grads
    lanes = np.zeros((8, len(grads)), np.float32)
    for column in range(grads.shape[1]):
        lanes[column % 8] += squares[:, column]
    even = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6])
    odd = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
    mean: Floats = (even + odd) / f32(grads.shape[1])
    return mean
