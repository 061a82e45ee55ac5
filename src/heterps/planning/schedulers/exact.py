"""The proven optimum: native branch and bound over the period, stages and limits."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from heterps.planning import _native
from heterps.planning.feasibility import why_infeasible
from heterps.planning.kernel import Assignments
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.schedulers.base import Progress, Report, Scheduler, Stop, ignore, never

_SLICE = 5_000_000  # elementary steps between two looks at `stop`: a few hundredths of a second


class ExactScheduler(Scheduler):
    """Proves its plan optimal, or says how far from optimal it can be at the most.

    ``max_work`` bounds the elementary steps of the search (about 1e8 a second).
    """

    name: ClassVar[str] = "exact"
    MAX_WORK: ClassVar[int] = 4_000_000_000

    def __init__(self, max_work: int = MAX_WORK) -> None:
        self.max_work = max_work

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        return self.prove(problem, None, stop=stop, report=report)

    def prove(
        self,
        problem: Problem,
        incumbents: Assignments | None,
        *,
        stop: Stop = never,
        report: Report = ignore,
    ) -> Plan:
        """Starts from the best of ``incumbents`` (rows of type numbers): it prunes the search."""
        kernel = problem.kernel
        search = kernel.search()
        if incumbents is not None and len(incumbents):
            search.offer(kernel.native, np.ascontiguousarray(incumbents, np.int32))

        def enough() -> bool:
            return search.found and stop()

        done = search.run(_SLICE, enough)
        while not done and search.work < self.max_work and not enough():
            report(_progress(search.work, self.max_work, kernel.dollars, search))
            done = search.run(_SLICE, enough)
        if not search.found:
            raise why_infeasible(problem)
        plan = provision(problem, kernel.names(np.array(search.assignment, np.int32)))
        bound = plan.cost if done else min(plan.cost, search.lower_bound * kernel.dollars)
        return Plan(
            self.name,
            plan.assignment,
            plan.breakdown,
            lower_bound=bound,
            evaluations=search.evaluations,
        )


def _progress(done: int, total: int, dollars: float, search: _native.Search) -> Progress:
    cost = search.cost * dollars if search.found else None
    return Progress(done, total, cost, search.lower_bound * dollars)
