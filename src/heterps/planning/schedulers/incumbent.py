"""What the searching schedulers share: which types a layer may take, the best plan so far, and the
error where there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heterps.errors import HeterPSError, NoPlanFoundError
from heterps.planning.feasibility import why_infeasible
from heterps.planning.kernel import STATUS, Assignments, Provisions
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.schedulers.base import Progress, Report


class Incumbent:
    """Prices assignments, counts them, keeps the best plan and reports on it."""

    def __init__(self, problem: Problem, method: str, total: int | None, report: Report) -> None:
        self.problem = problem
        self.method = method
        self.total = total
        self.report = report
        self.evaluations = 0
        self.cost = np.inf
        self.assignment: NDArray[np.int32] | None = None

    @property
    def found(self) -> bool:
        return self.assignment is not None

    def price(self, assignments: Assignments) -> Provisions:
        """Prices the rows of type numbers; the best of them may become the plan to beat."""
        provisions = self.problem.kernel.provision(assignments)
        self.evaluations += len(assignments)
        best = int(np.argmin(provisions.cost))
        if provisions.feasible[best] and not provisions.cost[best] >= self.cost:
            self.cost = float(provisions.cost[best])
            self.assignment = assignments[best].astype(np.int32)
        self.report(Progress(self.evaluations, self.total, self.cost if self.found else None))
        return provisions

    def plan(self) -> Plan:
        """The best. Raises InfeasibleError or NoPlanFoundError where there is none."""
        if self.assignment is None:
            raise nothing_found(self.problem, self.method, self.evaluations)
        plan = provision(self.problem, self.problem.kernel.names(self.assignment))
        return plan.named(self.method, evaluations=self.evaluations)


def nothing_found(problem: Problem, method: str, evaluations: int) -> HeterPSError:
    """InfeasibleError where the fastest plan breaks a constraint too, else NoPlanFoundError."""
    _, fastest = problem.kernel.search().shortest_period()
    if fastest and problem.kernel.provision(np.array([fastest], np.int32)).feasible[0]:
        return NoPlanFoundError(method, evaluations)
    return why_infeasible(problem)


def choices(problem: Problem) -> list[NDArray[np.int32]]:
    """The types that each layer can have in some plan, by number: they have figures, units and
    memory for it. Raises InfeasibleError where a layer has none.
    """
    kernel = problem.kernel
    possible = (kernel.reach > np.arange(problem.layers)[:, None]) & (kernel.limit > 0)
    if not possible.any(axis=1).all():
        raise why_infeasible(problem)
    return [np.flatnonzero(row).astype(np.int32) for row in possible]


def ranks(provisions: Provisions) -> NDArray[np.float64]:
    """Numbers to compare plans by, lower is better: the cheaper of two feasible ones, any feasible
    one before any other, and of those the one that is closer to feasible.
    """
    violation = np.clip(provisions.violation, 0, 1e9)
    distance = len(STATUS) - provisions.status + violation / (1 + violation)
    return np.where(provisions.feasible, np.log1p(provisions.cost), 1000.0 * distance)
