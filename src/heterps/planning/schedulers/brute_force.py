"""Every assignment, one batch after the other: slow, and certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.errors import InputError
from heterps.planning.feasibility import why_infeasible
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices

_BATCH = 8192


class BruteForceScheduler(Scheduler):
    """Proves its plan by having tried all the others. Raises InputError for a problem with more
    than ``max_assignments``.
    """

    name: ClassVar[str] = "brute-force"

    def __init__(self, max_assignments: int = 5_000_000) -> None:
        self.max_assignments = max_assignments

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        count = math.prod(len(types) for types in options)
        if count > self.max_assignments:
            raise InputError(
                "method",
                f"{self.name} would have to try {count} assignments, more than the "
                f"{self.max_assignments} it is meant for; 'exact' or 'auto' prove the same",
            )
        incumbent = Incumbent(problem, self.name, count, report)
        for first in range(0, count, _BATCH):
            if incumbent.found and stop():
                return incumbent.plan()
            incumbent.price(_assignments(options, first, min(first + _BATCH, count)))
        if not incumbent.found:
            raise why_infeasible(problem)
        plan = incumbent.plan()
        return replace(plan, lower_bound=plan.cost)


def _assignments(options: Sequence[NDArray[np.int32]], first: int, end: int) -> NDArray[np.int32]:
    """Numbers ``first`` to ``end`` of the list of all, the last layer changing fastest."""
    rest = np.arange(first, end)
    rows = np.empty((end - first, len(options)), np.int32)
    for layer in reversed(range(len(options))):
        rest, digit = np.divmod(rest, len(options[layer]))
        rows[:, layer] = options[layer][digit]
    return rows
