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
from contextlib import suppress
from dataclasses import dataclass, replace

from heterps.errors import InfeasibleError, InputError
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.ranking import next_best
from heterps.planning.schedulers.base import Progress, Report, Stop, ignore, never
from heterps.planning.simulate import least_batches, simulate

METHOD = "simulated"
_BESIDE = 12  # plans that the formula finds hardly worse
_RANKING_WORK = 20_000_000
_TOLERANCE = 1e-3  # below the floor: by chance of where the simulation is cut


@dataclass(frozen=True)
class SimulatedPlan:
    """What a run of a plan is expected to reach, and dollars for the workload at that speed;
    ``kept`` is whether that is the floor or more."""

    plan: Plan
    samples_per_s: float
    cost: float
    kept: bool

    @property
    def order(self) -> tuple[bool, float]:
        """The best first: by cost; those that miss the floor last, of which the faster are the
        better."""
        return not self.kept, self.cost if self.kept else -self.samples_per_s


def cheapest_simulated(
    problem: Problem, plan: Plan, *, stop: Stop = never, report: Report = ignore
) -> SimulatedPlan:
    """The best of those that were looked at, ``plan`` among them, until ``stop``. Raises InputError
    when none of them can be simulated, and InfeasibleError when none keeps the floor."""
    search = _Search(problem, stop)
    found: list[SimulatedPlan] = []
    for number, start in enumerate(_starts(problem, plan, stop)):
        climbed = search.climb(start)
        found += [climbed] if climbed is not None else []
        if stop():
            break
        report(Progress(number + 1, None, min(each.cost for each in found) if found else None))
    if search.error is not None and not found:
        raise search.error
    best = sorted(found, key=lambda each: each.order)
    judged = [search.judge(each.plan) for each in best[:1]]
    while not judged[-1].kept and len(judged) < len(best) and not stop():
        judged.append(search.judge(best[len(judged)].plan))
    chosen = min(judged, key=lambda each: each.order)
    if not chosen.kept:
        raise InfeasibleError("throughput", _reason(chosen), chosen.samples_per_s)
    evaluations = chosen.plan.named(METHOD, evaluations=search.evaluations, lower_bound=None)
    return replace(chosen, plan=evaluations)


def _reason(best: SimulatedPlan) -> str:
    fastest = f"the fastest of them runs at {best.samples_per_s:,.0f} samples/s"
    return f"by the simulator no plan near the cheapest reaches the floor; {fastest}"


def _starts(problem: Problem, plan: Plan, stop: Stop) -> Iterator[Plan]:
    yield plan
    for name in problem.types:
        with suppress(InfeasibleError, InputError):
            yield provision(problem, [name] * problem.layers)
    for other in next_best(problem, plan, _BESIDE, max_work=_RANKING_WORK, stop=stop):
        yield other.plan


class _Search:
    """``error`` is why the first plan that could not be simulated could not be."""

    def __init__(self, problem: Problem, stop: Stop) -> None:
        self._problem = problem
        self._stop = stop
        self._limits = {entry.name: entry.limit for entry in problem.cluster.types}
        self._known: dict[tuple[tuple[str, ...], tuple[int, ...]], SimulatedPlan | None] = {}
        self.error: InputError | None = None

    @property
    def evaluations(self) -> int:
        return len(self._known)

    def judge(self, plan: Plan, batches: int | None = None) -> SimulatedPlan:
        """By a simulation of so many batches, or as many as it takes."""
        found = simulate(self._problem, plan, batches=batches).samples_per_s
        if not found or not plan.throughput:
            return SimulatedPlan(plan, math.inf, 0.0, kept=True)  # nothing takes any time
        floor = self._problem.workload.min_throughput
        kept = found >= floor * (1 - _TOLERANCE)
        return SimulatedPlan(plan, found, plan.cost * plan.throughput / found, kept)

    def climb(self, plan: Plan) -> SimulatedPlan | None:
        """By a unit at a time, as long as it gets better; from fewer where the plan cannot run."""
        best = self._of(plan.assignment, plan.units) or self._of(plan.assignment, self._few(plan))
        while best is not None and not self._stop():
            around = [self._of(plan.assignment, units) for units in self._around(best.plan)]
            first = min((each for each in around if each), key=lambda e: e.order, default=best)
            if first.order >= best.order:
                break
            best = first
        return best

    def _of(self, assignment: tuple[str, ...], units: tuple[int, ...]) -> SimulatedPlan | None:
        """None where it cannot be simulated, or there is no time for it."""
        key = (assignment, units)
        if key not in self._known and not (self._known and self._stop()):
            try:
                own = make_plan(self._problem, METHOD, assignment, units)
                self._known[key] = self.judge(own, least_batches(self._problem.workload.staleness))
            except InputError as error:  # more replicas than micro-batches
                self.error = self.error or error
                self._known[key] = None
        return self._known.get(key)

    def _few(self, plan: Plan) -> tuple[int, ...]:
        """No more units in a stage than there are micro-batches for."""
        return tuple(min(units, self._problem.workload.micro_batches) for units in plan.units)

    def _around(self, plan: Plan) -> Iterator[tuple[int, ...]]:
        used = plan.units_by_type()
        for at, stage in enumerate(plan.stages):
            for change in (1, -1):
                units = stage.units + change
                if units >= 1 and used[stage.type] + change <= self._limits[stage.type]:
                    yield (*plan.units[:at], units, *plan.units[at + 1 :])
