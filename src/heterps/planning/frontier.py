"""What more speed costs: the cheapest plans at rising floors, up to the fastest there is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heterps.planning.kernel import Assignments, Kernel
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Stop, never
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.planning.solve import EQUAL, plan_of, solve
from heterps.planning.variants import variant

_PRECISION = 1e-3  # of the fastest plan's period: the last digits are the hardest to prove


@dataclass(frozen=True)
class Frontier:
    """Plans of which none is both cheaper and faster than another, from cheap to fast.

    ``complete``: no plan is faster than the last one by more than 0.1 %. Each plan carries its own
    bound: its cost is proven to be the least at its speed where its gap is 0.
    """

    plans: tuple[Plan, ...]
    complete: bool


def frontier(
    problem: Problem,
    points: int = 16,
    *,
    max_work: int = 4_000_000,
    stop: Stop = never,
) -> Frontier:
    """About ``points`` plans between the cheapest of all, floor or not, and the fastest.

    ``max_work`` bounds the search at each floor. Raises InfeasibleError where limits and memory
    admit no plan.
    """
    cheapest = ExactScheduler().plan(problem.with_min_throughput(0), stop=stop)
    if cheapest.throughput is None:
        return Frontier((cheapest,), complete=True)
    kernel = problem.kernel
    first = np.array(problem.type_indices(cheapest.assignment), np.int32)
    fastest, shortest_s, complete = _fastest(kernel, first, stop)
    rows, plans = np.stack((first, fastest)), [cheapest]
    for longest_s in _periods(problem, cheapest.throughput, shortest_s, points):
        at_floor = variant(kernel, max_period_s=longest_s)
        found = solve(at_floor, rows, max_work=max_work, stop=stop)
        if found.assignment is not None:
            plans.append(plan_of(at_floor, found, "exact"))
            rows = np.concatenate((rows, found.assignment[None]))
    return Frontier(_non_dominated(plans), complete)


def _fastest(kernel: Kernel, cheapest: Assignments, stop: Stop) -> tuple[Assignments, float, bool]:
    """An assignment, its shortest period, and whether no plan has a notably shorter one."""
    if stop():
        provisions = kernel.provision(cheapest[None], fastest=True)
        return cheapest, float(provisions.period_s[0]), False
    period_s, assignment = kernel.search().shortest_period(_PRECISION)
    return np.array(assignment, np.int32), period_s, True


def _periods(problem: Problem, slowest: float, shortest_s: float, points: int) -> list[float]:
    """Longest periods to solve for, shortest first: those of evenly spaced floors and the problem's
    own. Plans found at high floors are plans to beat at the lower ones.
    """
    batch = problem.workload.batch_size
    floors = np.linspace(batch / shortest_s, slowest, max(points, 2))[1:-1].tolist()
    if slowest < problem.workload.min_throughput < batch / shortest_s:
        floors.append(problem.workload.min_throughput)
    return [shortest_s, *(batch / floor for floor in sorted(floors, reverse=True))]


def _non_dominated(plans: list[Plan]) -> tuple[Plan, ...]:
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (-(plan.throughput or math.inf), plan.cost)):
        if not kept or plan.cost < kept[-1].cost * (1 - EQUAL):
            kept.append(plan)
    return tuple(reversed(kept))
