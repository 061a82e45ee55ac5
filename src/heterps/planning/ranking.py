"""The next-best plans: the cheapest that differ from a given one.

Every other plan departs from the given one at some first layer. So all others fall into one class
per layer: as the given plan before it, anything but the given type on it. The cheapest plan of each
class is found by the exact search; the cheapest of those is the next best, and its class is split
again in the same way (Murty's ranking).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Assignments, Kernel
from heterps.planning.neighbours import neighbours
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Stop, never
from heterps.planning.solve import EQUAL, Solution, plan_of, solve
from heterps.planning.variants import variant


@dataclass(frozen=True)
class Alternative:
    """A plan that differs from the given one, and what it costs on top of it (below 0: less).

    ``proven``: no plan is cheaper but the given one and those listed before this one.
    """

    plan: Plan
    extra: float
    proven: bool

    @property
    def extra_share(self) -> float | None:
        """Of the given plan's cost; None where that is 0."""
        given = self.plan.cost - self.extra
        return self.extra / given if given > 0 else None


@dataclass(frozen=True)
class _Class:
    """Plans with the types in ``allowed``, of which the first ``fixed`` layers have one each."""

    fixed: int
    allowed: NDArray[np.bool_]
    solution: Solution


class _Pool:
    """Neighbours of plans met so far, priced: incumbents for the searches."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.rows = np.empty((0, kernel.problem.layers), np.int32)
        self.costs = np.empty(0)

    def add_around(self, assignment: Assignments) -> None:
        rows = neighbours(assignment, len(self.kernel.problem.types))
        provisions = self.kernel.provision(rows)
        keep = provisions.feasible
        self.rows = np.concatenate((self.rows, rows[keep]))
        self.costs = np.concatenate((self.costs, provisions.cost[keep]))

    def best_by_departure(
        self, assignment: Assignments, allowed: NDArray[np.bool_]
    ) -> dict[int, Assignments]:
        """The cheapest allowed row per first layer that differs from ``assignment``."""
        layer = np.arange(len(assignment))
        differs = self.rows != assignment
        inside = allowed[layer, self.rows].all(axis=1) & differs.any(axis=1)
        best: dict[int, Assignments] = {}
        for index in np.flatnonzero(inside)[np.argsort(self.costs[inside], kind="stable")]:
            best.setdefault(int(differs[index].argmax()), self.rows[index])
        return best


def next_best(
    problem: Problem,
    plan: Plan,
    count: int = 3,
    *,
    max_work: int = 100_000_000,
    stop: Stop = never,
) -> tuple[Alternative, ...]:
    """The ``count`` cheapest plans with another assignment, cheapest first; fewer if there are no
    more. After ``max_work`` steps, or when stopped, what is known by then, marked as not proven.
    """
    ranking = _Ranking(problem.kernel, max_work, stop)
    found = ranking.plans_beside(np.array(problem.type_indices(plan.assignment), np.int32), plan)
    alternatives = [
        Alternative(other, other.cost - plan.cost, proven)
        for other, proven in itertools.islice(found, count)
    ]
    return tuple(sorted(alternatives, key=lambda entry: entry.extra))


class _Ranking:
    def __init__(self, kernel: Kernel, max_work: int, stop: Stop) -> None:
        self.kernel = kernel
        self.pool = _Pool(kernel)
        self.work_left = max_work
        self.stop = stop

    def plans_beside(self, given: Assignments, plan: Plan) -> Iterator[tuple[Plan, bool]]:
        """Other plans with whether each is proven to be the next best."""
        everything = self.kernel.runs.astype(np.bool_)
        solution = Solution(given, plan.cost, plan.lower_bound or 0.0, 0, 0)
        split = _Class(0, everything, solution)
        classes: list[_Class] = []
        while True:
            classes += self._parts(split)
            if not classes:
                return
            split = min(classes, key=lambda part: part.solution.cost)
            if split.solution.assignment is None:
                return
            bound = min(part.solution.lower_bound for part in classes)
            classes = [part for part in classes if part is not split]
            yield (
                plan_of(self.kernel, split.solution, "next-best"),
                split.solution.cost <= bound * (1 + EQUAL),
            )

    def _parts(self, split: _Class) -> Iterator[_Class]:
        """The classes of the plans in ``split`` other than its solution."""
        given = split.solution.assignment
        assert given is not None
        self.pool.add_around(given)
        incumbents = self.pool.best_by_departure(given, split.allowed)
        allowed = split.allowed.copy()
        for layer in range(split.fixed, len(given)):
            here = allowed.copy()
            here[layer, given[layer]] = False
            if here[layer].any():
                yield _Class(layer, here, self._solve(here, incumbents.get(layer), split))
            allowed[layer] = False
            allowed[layer, given[layer]] = True

    def _solve(
        self, allowed: NDArray[np.bool_], incumbent: Assignments | None, whole: _Class
    ) -> Solution:
        rows = None if incumbent is None else incumbent[None]
        kernel = variant(self.kernel, allowed=allowed)
        solution = solve(kernel, rows, max_work=self.work_left, stop=self.stop)
        self.work_left -= solution.work
        # A part is no cheaper than the class it comes from.
        bound = max(solution.lower_bound, whole.solution.lower_bound)
        return replace(solution, lower_bound=bound)
