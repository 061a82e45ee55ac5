"""A dense tensor that the parameter server trains, with the same rules as the sparse tables."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heterps.ps import _native
from heterps.ps.arrays import floats_of, out_of, rows_of
from heterps.ps.parts import write_tensor
from heterps.ps.rules import Rule, make_rule
from heterps.ps.snapshots import Where, open_snapshot


class CapturedTensor(NamedTuple):
    """Values, rule state and step of one moment."""

    step: int
    values: npt.NDArray[np.float32]
    state: npt.NDArray[np.float32]


class DenseTensor:
    """Weights of any shape, changed by every push; the last axis is what row-wise rules average.

    Calls may come from several threads.
    """

    def __init__(self, values: Any, rule: str | Rule = "adam", *, lr: float | None = None) -> None:
        initial = floats_of(values, "values")
        self.shape = initial.shape
        self.rule = make_rule(rule, lr)
        columns = max(initial.shape[-1], 1) if initial.shape else 1
        self._matrix = (initial.size // columns, columns)
        self._changing = threading.Lock()  # values, state and step are saved as of one push
        self._store = self._open_store(
            values=initial.reshape(self._matrix),
            rule=self.rule.name,
            lr=self.rule.lr,
            options=self.rule.options(),
        )

    @staticmethod
    def _open_store(**settings: Any) -> Any:
        """Where the values are; tests put the reference here."""
        return _native.Dense(**settings)

    def pull(self, out: Any = None) -> npt.NDArray[np.float32]:
        """The values; into ``out`` if it is given."""
        target = np.empty(self.shape, np.float32) if out is None else out_of(out, self.shape)
        self._store.pull(target.reshape(self._matrix))
        return target

    def push(self, grads: Any, lr: float | None = None) -> None:
        """One step of the rule."""
        rate = None if lr is None else self.rule.check_lr(lr)
        checked = rows_of(grads, self.shape).reshape(self._matrix)
        with self._changing:
            self._store.push(checked, rate)

    @property
    def lr(self) -> float:
        """The learning rate of pushes that name none."""
        return float(self._store.lr)

    @lr.setter
    def lr(self, lr: float) -> None:
        self._store.lr = self.rule.check_lr(lr)

    @property
    def step(self) -> int:
        """How many pushes there have been."""
        return int(self._store.step)

    def save_part(
        self,
        folder: Where,
        name: str,
        captured: CapturedTensor | None = None,
    ) -> dict[str, Any]:
        """Write the tensor into a snapshot, as it is or was captured; the entry to publish."""
        settings = self._settings()
        return write_tensor(folder, name, settings, *(captured or self.capture()))

    def capture(self) -> CapturedTensor:
        """A copy as of one push."""
        values = np.empty(self._matrix, np.float32)
        width = self.rule.state_width(self._matrix[1])
        state = np.empty((self._matrix[0], width), np.float32)
        with self._changing:
            self._store.pull(values)
            self._store.read_state(state)
            return CapturedTensor(self.step, values, state)

    def load(self, path: Where, name: str) -> None:
        """Take values, state, step and learning rate from a snapshot."""
        settings = self._settings()
        lr = settings.pop("lr")
        values, state, step, saved = open_snapshot(path).load_tensor(name, settings)
        self._store.restore(values, state, step)
        self._store.lr = saved.get("lr", lr)

    def _settings(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "state_width": self.rule.state_width(self._matrix[1]),
            "rule": self.rule.name,
            "lr": self.lr,
        }
