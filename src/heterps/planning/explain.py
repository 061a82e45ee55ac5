"""Why a plan is as it is: what binds it, what comes next, and what would make it cheaper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heterps.planning.cost_model import StageCost
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.ranking import Alternative, next_best
from heterps.planning.schedulers.base import Stop, never
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.planning.solve import EQUAL, plan_of, solve
from heterps.planning.variants import variant

_LOWER = 0.9  # the floor that is tried, as a share of the given one


@dataclass(frozen=True)
class Binding:
    """The slowest stage: it sets the pace of all. ``by`` is ``compute`` or ``communication``."""

    index: int
    stage: StageCost

    @property
    def by(self) -> str:
        return self.stage.bound_by


@dataclass(frozen=True)
class Change:
    """The cheapest plan under another limit (``type`` names whose) or, where ``type`` is None,
    another floor; and how much less it costs than the cheapest under the present ones.

    ``proven``: both of these are, so that the saving is exact.
    """

    type: str | None
    value: float
    plan: Plan
    saving: float
    proven: bool

    def as_document(self) -> dict[str, Any]:
        what = {"min_throughput": self.value} if self.type is None else {"type": self.type}
        limit = {} if self.type is None else {"limit": int(self.value)}
        figures = {"cost": self.plan.cost, "saving": self.saving, "proven": self.proven}
        return what | limit | figures


@dataclass(frozen=True)
class Explanation:
    """``binding`` is None where nothing takes time. ``reference`` is the plan that the changes are
    measured against: the plan itself if it is proven optimal, else the best that the exact search
    finds. ``lower_floor`` is None where there is no floor.
    """

    plan: Plan
    binding: Binding | None
    alternatives: tuple[Alternative, ...]
    reference: Plan
    more_units: tuple[Change, ...]
    lower_floor: Change | None

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        binding = self.binding
        return {
            "binding": binding and {"stage": binding.index, "by": binding.by},
            "next_best": [
                {
                    "assignment": list(other.plan.assignment),
                    "units": list(other.plan.units),
                    "cost": other.plan.cost,
                    "extra": other.extra,
                    "proven": other.proven,
                }
                for other in self.alternatives
            ],
            "reference_cost": self.reference.cost,
            "one_more_unit": [change.as_document() for change in self.more_units],
            "lower_floor": self.lower_floor and self.lower_floor.as_document(),
        }


def explain(
    problem: Problem,
    plan: Plan,
    *,
    alternatives: int = 3,
    max_work: int = 10_000_000,
    stop: Stop = never,
) -> Explanation:
    """Explains a feasible plan. ``max_work`` bounds each search; once ``stop`` answers true, what
    is then known is returned, marked as not proven.
    """
    reference = plan if _optimal(plan) else _best(problem, plan, max_work, stop)
    # Few searches before many, for the case that there is no time for all.
    lower_floor = _lower_floor(problem, reference, max_work, stop)
    more_units = tuple(
        _one_more(problem, reference, name, max_work, stop) for name in problem.types
    )
    others = next_best(problem, plan, alternatives, max_work=max_work, stop=stop)
    return Explanation(plan, binding_stage(plan), others, reference, more_units, lower_floor)


def binding_stage(plan: Plan) -> Binding | None:
    """The stage with the longest period; the first of those that are equally long."""
    index = max(range(len(plan.stages)), key=lambda stage: plan.stages[stage].period_s)
    stage = plan.stages[index]
    return Binding(index, stage) if stage.period_s > 0 else None


def _optimal(plan: Plan) -> bool:
    return plan.gap is not None and plan.gap <= EQUAL


def _best(problem: Problem, plan: Plan, max_work: int, stop: Stop) -> Plan:
    row = np.array([problem.type_indices(plan.assignment)], np.int32)
    return ExactScheduler(max_work).prove(problem, row, stop=stop)


def _one_more(problem: Problem, reference: Plan, name: str, max_work: int, stop: Stop) -> Change:
    limit = problem.kernel.limit + (np.array(problem.types) == name)
    value = int(limit[problem.types.index(name)])
    return _changed(problem, reference, name, value, max_work, stop, limit=limit)


def _lower_floor(problem: Problem, reference: Plan, max_work: int, stop: Stop) -> Change | None:
    value = problem.workload.min_throughput * _LOWER
    if value <= 0:
        return None
    longest_s = problem.workload.batch_size / value
    return _changed(problem, reference, None, value, max_work, stop, max_period_s=longest_s)


def _changed(
    problem: Problem,
    reference: Plan,
    name: str | None,
    value: float,
    max_work: int,
    stop: Stop,
    **difference: Any,
) -> Change:
    kernel = variant(problem.kernel, **difference)
    row = np.array([problem.type_indices(reference.assignment)], np.int32)
    found = solve(kernel, row, max_work=max_work, stop=stop)
    plan = plan_of(kernel, found, "exact")
    saving = max(0.0, reference.cost - plan.cost)
    return Change(name, value, plan, saving, _optimal(reference) and found.proven)
