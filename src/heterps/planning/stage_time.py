"""How long a stage takes on any number of units, and how many units it needs to be in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heterps.planning.kernel import Kernel

SLACK = 1e-9  # relative, of every comparison with a period


@dataclass(frozen=True)
class StageTime:
    """Seconds per batch on k units: the larger of serial + parallel / k over both ``sides``, which
    are compute and communication as (serial, parallel). ``type`` is the type's number.
    """

    type: int
    sides: tuple[tuple[float, float], tuple[float, float]]

    def period(self, units: float) -> float:
        return max(serial + parallel / units for serial, parallel in self.sides)

    @property
    def serial_s(self) -> float:
        """What no number of units can shorten."""
        return max(serial for serial, _ in self.sides)

    def units(self, period: float) -> float:
        """Continuous, one or more; infinite where no number keeps the period."""
        need = 1.0
        for serial, parallel in self.sides:
            if parallel > 0:
                left = period - serial
                need = max(need, parallel / left if left > 0 else math.inf)
        return need

    def whole_units(self, period: float, limit: int) -> int:
        """The fewest that keep the period; more than ``limit`` where that would not do."""
        allowed = period * (1 + SLACK)
        k = math.ceil(min(self.units(allowed), limit))
        while k > 1 and self.period(k - 1) <= allowed:
            k -= 1
        while k <= limit and self.period(k) > allowed:
            k += 1
        return k


def stages_in(kernel: Kernel, assignment: Sequence[int]) -> list[StageTime]:
    """The stages of an assignment by type numbers, which all its layers can run on."""
    cuts = [i for i in range(1, len(assignment)) if assignment[i] != assignment[i - 1]]
    bounds = zip([0, *cuts], [*cuts, len(assignment)], strict=True)
    return [_stage(kernel, first, end, assignment[first]) for first, end in bounds]


def _stage(kernel: Kernel, first: int, end: int, index: int) -> StageTime:
    rows = slice(first, end)
    compute, alpha = kernel.compute[rows, index], kernel.alpha[rows, index]
    comm, beta = kernel.comm[rows, index], kernel.beta[rows, index]
    serial = float(comm @ (1 - beta) + kernel.sync[rows, index].sum())
    parallel = float(comm @ beta)
    for border in (first, end):
        if 0 < border < len(kernel.comm):
            moved, share = kernel.transfer[border, index], kernel.transfer_beta[border, index]
            serial += float(moved * (1 - share))
            parallel += float(moved * share)
    return StageTime(
        index, ((float(compute @ (1 - alpha)), float(compute @ alpha)), (serial, parallel))
    )


def within_limits(kernel: Kernel, stages: Sequence[StageTime], units: Sequence[float]) -> bool:
    used = [0.0] * len(kernel.limit)
    for stage, k in zip(stages, units, strict=True):
        used[stage.type] += k
    return all(u <= limit for u, limit in zip(used, kernel.limit, strict=True))
