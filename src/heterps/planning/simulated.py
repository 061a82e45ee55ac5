"""The cheapest plan by the simulator, near the cheapest ones by the formula.

The formula is the steady state of a pipeline whose stages never wait for each other. In a run they
do, the more the closer their speeds are: a plan of several stages may cost more than it says, and
less with a unit more or fewer. Simulating every plan would take too long. So, from the cheapest
plans by the formula and those of one type on, units are added and taken away as long as that makes
a plan cheaper in the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from heterps.errors import InfeasibleError, InputError
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.ranking import next_best
from heterps.planning.schedulers.base import Progress, Report, Stop, ignore, never
from heterps.planning.simulate import simulate

METHOD = "simulated"
_BESIDE = 12  # plans that the formula finds hardly worse
_RANKING_WORK = 20_000_000
_BATCHES = 12  # of a simulation, which is enough to tell plans apart
_TOLERANCE = 1e-3  # below the floor: by chance of where the simulation is cut


@dataclass(frozen=True)
class SimulatedPlan:
    """What a run of a plan is expected to reach, and dollars for the workload at that speed;
    ``kept`` is whether that is the floor or more."""

    plan: Plan
    samples_per_s: float
    cost: float
    kept: bool

    def better_than(self, other: SimulatedPlan | None) -> bool:
        """Cheaper; a plan that keeps the floor before one that does not, of which the faster one is
        the better."""
        if other is None or self.kept != other.kept:
            return other is None or self.kept
        return self.cost < other.cost if self.kept else self.samples_per_s > other.samples_per_s


def cheapest_simulated(
    problem: Problem, plan: Plan, *, stop: Stop = never, report: Report = ignore
) -> SimulatedPlan:
    """Never worse than ``plan`` in the simulator. Raises InputError when that cannot be simulated,
    and InfeasibleError when no plan that was looked at keeps the floor there."""
    search = _Search(problem)
    best = search.judge(plan)
    for number, start in enumerate(_starts(problem, plan)):
        if stop():
            break
        found = search.climb(start, stop)
        if found is not None and found.better_than(best):
            best = found
        report(Progress(number + 1, None, best.cost))
    if not best.kept and not stop():
        raise InfeasibleError("throughput", _reason(best), best.samples_per_s)
    return best


def _reason(best: SimulatedPlan) -> str:
    fastest = f"the fastest of them runs at {best.samples_per_s:,.0f} samples/s"
    return f"by the simulator no plan near the cheapest reaches the floor; {fastest}"


def _starts(problem: Problem, plan: Plan) -> Iterator[Plan]:
    yield plan
    for name in problem.types:
        try:
            yield provision(problem, [name] * problem.layers)
        except (InfeasibleError, InputError):
            continue
    for other in next_best(problem, plan, _BESIDE, max_work=_RANKING_WORK):
        yield other.plan


class _Search:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._limits = {entry.name: entry.limit for entry in problem.cluster.types}
        self._known: dict[tuple[tuple[str, ...], tuple[int, ...]], SimulatedPlan | None] = {}

    def judge(self, plan: Plan) -> SimulatedPlan:
        found = simulate(self._problem, plan, batches=_BATCHES).samples_per_s
        if not found or not plan.throughput:
            return SimulatedPlan(plan, math.inf, 0.0, kept=True)  # nothing takes any time
        floor = self._problem.workload.min_throughput
        kept = found >= floor * (1 - _TOLERANCE)
        return SimulatedPlan(plan, found, plan.cost * plan.throughput / found, kept)

    def climb(self, plan: Plan, stop: Stop) -> SimulatedPlan | None:
        """By a unit at a time, as long as it gets better."""
        best = self._of(plan.assignment, plan.units)
        while best is not None and not stop():
            around = [self._of(plan.assignment, units) for units in self._around(best.plan)]
            better = [each for each in around if each is not None and each.better_than(best)]
            if not better:
                break
            best = better[0]
            for each in better[1:]:
                best = each if each.better_than(best) else best
        return best

    def _of(self, assignment: tuple[str, ...], units: tuple[int, ...]) -> SimulatedPlan | None:
        key = (assignment, units)
        if key not in self._known:
            try:
                own = make_plan(self._problem, METHOD, assignment, units)
                self._known[key] = self.judge(own)
            except InputError:  # more replicas than micro-batches
                self._known[key] = None
        return self._known[key]

    def _around(self, plan: Plan) -> Iterator[tuple[int, ...]]:
        used = plan.units_by_type()
        for at, stage in enumerate(plan.stages):
            for change in (1, -1):
                units = stage.units + change
                if units >= 1 and used[stage.type] + change <= self._limits[stage.type]:
                    yield (*plan.units[:at], units, *plan.units[at + 1 :])
