"""The native search, run in slices: bounded work, a stop test, progress."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from heterps.planning import _native
from heterps.planning.kernel import Assignments, Kernel
from heterps.planning.plan import Plan, make_plan
from heterps.planning.schedulers.base import Progress, Report, Stop, ignore, never

_SLICE = 5_000_000  # elementary steps between two reports: a few hundredths of a second
EQUAL = 1e-6  # costs closer than this, relatively, are equal (docs/planning.md)


@dataclass(frozen=True)
class Solution:
    """The best assignment found (None if there is none), and what is proven about the cost of
    any, in dollars. ``work`` counts elementary steps.
    """

    assignment: Assignments | None
    cost: float
    lower_bound: float
    evaluations: int
    work: int

    @property
    def proven(self) -> bool:
        """Optimal, or known not to exist."""
        return self.lower_bound >= self.cost * (1 - EQUAL)


def solve(
    kernel: Kernel,
    incumbents: Assignments | None = None,
    *,
    max_work: int,
    stop: Stop = never,
    report: Report = ignore,
    insist: bool = False,
) -> Solution:
    """The cheapest plan, as far as about ``max_work`` steps lead, starting from the best of
    ``incumbents`` (rows of type numbers), which prunes the search. With ``insist``, ``stop`` and
    ``max_work`` hold only once there is a plan."""
    search = kernel.search()
    if incumbents is not None and len(incumbents):
        search.offer(kernel.native, np.ascontiguousarray(incumbents, np.int32))

    def enough() -> bool:
        return (search.found or not insist) and (search.work >= max_work or stop())

    done = False
    while not done and not enough():
        done = search.run(min(_SLICE, max(max_work - search.work, 1)), enough)
        if not done:
            report(_progress(search, max_work, kernel.dollars))
    cost = search.cost * kernel.dollars if search.found else math.inf
    bound = min(cost, search.lower_bound * kernel.dollars)
    assignment = np.array(search.assignment, np.int32) if search.found else None
    return Solution(assignment, cost, bound, search.evaluations, search.work)


def _progress(search: _native.Search, max_work: int, dollars: float) -> Progress:
    cost = search.cost * dollars if search.found else None
    return Progress(search.work, max_work, cost, search.lower_bound * dollars)


def plan_of(kernel: Kernel, solution: Solution, method: str) -> Plan:
    """The solution, provisioned under the kernel's own limits and floor."""
    assert solution.assignment is not None, "a plan was found"
    units = [int(k) for k in kernel.provision(solution.assignment[None]).units[0] if k]
    proof: dict[str, Any] = {"evaluations": solution.evaluations}
    names = kernel.names(solution.assignment)
    plan = make_plan(kernel.problem, method, names, units, **proof)
    bound = plan.cost if solution.proven else min(plan.cost, solution.lower_bound)
    return make_plan(kernel.problem, method, names, units, lower_bound=bound, **proof)
