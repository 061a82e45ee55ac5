"""The proven optimum: native branch and bound over the period, stages and limits."""

from __future__ import annotations

from typing import ClassVar

from heterps.planning.feasibility import why_infeasible
from heterps.planning.kernel import Assignments
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.solve import plan_of, solve


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
        solution = solve(
            problem.kernel,
            incumbents,
            max_work=self.max_work,
            stop=stop,
            report=report,
            insist=True,
        )
        if solution.assignment is None:
            raise why_infeasible(problem)
        return plan_of(problem.kernel, solution, self.name)
