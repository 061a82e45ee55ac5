"""One resource type for the whole model: CPU only, GPU only, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent


class SingleTypeScheduler(Scheduler):
    """The cheapest plan that uses one type; its ``method`` says which: ``single-type:cpu``."""

    name: ClassVar[str] = "single-type"

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        types = range(len(problem.types))
        incumbent = Incumbent(problem, self.name, len(types), report)
        incumbent.price(np.array([[index] * problem.layers for index in types], np.int32))
        plan = incumbent.plan()
        return plan.named(f"{self.name}:{plan.assignment[0]}")


def alone(options: Sequence[NDArray[np.int32]], types: int) -> NDArray[np.int32]:
    """A row of type numbers for each type: that type wherever a layer has the option, and the
    layer's first option elsewhere.
    """
    rows = [[index if index in layer else layer[0] for layer in options] for index in range(types)]
    return np.array(rows, np.int32)
