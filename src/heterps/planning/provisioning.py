"""How many units each stage of a given assignment gets.

``provision`` is exact. ``provision_balanced`` is the paper's way (equal stage throughputs in the
continuous, then rounding) and ``provision_static`` the fixed ratio of units that hand-made set-ups
use; both are there for comparison.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heterps.errors import InfeasibleError, InputError, UnknownNameError
from heterps.job.fields import shown
from heterps.planning.balanced import balanced_units
from heterps.planning.feasibility import why_assignment_infeasible
from heterps.planning.kernel import STATUS, Provisions
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem
from heterps.planning.stage_time import SLACK, StageTime, stages_in


def provision(problem: Problem, assignment: Sequence[str], method: str = "assignment") -> Plan:
    """The cheapest units for the assignment. Raises InfeasibleError."""
    result = _provisioned(problem, problem.type_indices(assignment))
    units = [int(k) for k in result.units[0] if k]
    return make_plan(problem, method, assignment, units, evaluations=1)


def provision_balanced(problem: Problem, assignment: Sequence[str]) -> Plan:
    """The paper's way: the continuous units that make all stages equally fast at the least cost,
    rounded up. Close to the cheapest, but not exact. Raises InfeasibleError.
    """
    indices = problem.type_indices(assignment)
    _provisioned(problem, indices)
    units = balanced_units(problem.kernel, stages_in(problem.kernel, indices))
    return make_plan(problem, "balanced", assignment, units, evaluations=1)


def provision_static(problem: Problem, assignment: Sequence[str], ratio: Mapping[str, int]) -> Plan:
    """The baseline of a fixed ratio: units come in bundles, as in servers of one make.

    ``ratio`` says how many units of each type a bundle holds, one where a type is not named:
    ``{"cpu": 12}`` gives twelve cores to each accelerator. Every stage gets its type's share of m
    bundles, and m is the smallest number that meets the throughput floor.

    Raises InputError for a bad ratio, and InfeasibleError where no number of bundles within the
    limits will do; its ``max_throughput`` is what the ratio reaches at the most.
    """
    shares = _shares(problem, ratio)
    indices = problem.type_indices(assignment)
    _provisioned(problem, indices, floor=False)
    stages = stages_in(problem.kernel, indices)
    bundles = _Bundles(problem, stages, [shares[stage.type] for stage in stages])
    named = ", ".join(f"{name} {share}" for name, share in zip(problem.types, shares, strict=True))
    if bundles.most < 1:
        raise InfeasibleError("limit", f"one bundle ({named}) is more than the limits allow")
    fewest = bundles.fewest(problem.kernel.max_period_s * (1 + SLACK))
    if fewest is None:
        reached = problem.workload.batch_size / bundles.period(bundles.most)
        raise InfeasibleError(
            "throughput",
            f"workload.min_throughput is {problem.workload.min_throughput:g} samples/s, and units "
            f"in the ratio {named} reach {reached:.6g} at the most",
            reached,
        )
    return make_plan(problem, "static", assignment, bundles.units(fewest), evaluations=1)


def _provisioned(problem: Problem, indices: Sequence[int], *, floor: bool = True) -> Provisions:
    """Raises InfeasibleError; for a throughput below the floor only if that matters."""
    row = np.array(indices, np.int32)
    result = problem.kernel.provision(row[None])
    status = int(result.status[0])
    if status and (floor or STATUS[status] != "throughput"):
        shortest_s = float(problem.kernel.provision(row[None], fastest=True).period_s[0])
        raise why_assignment_infeasible(problem, row, status, shortest_s)
    return result


def _shares(problem: Problem, ratio: Mapping[str, int]) -> list[int]:
    for name, share in ratio.items():
        if name not in problem.types:
            raise UnknownNameError(f"ratio.{name}", "resource type", name, problem.types)
        if share < 1 or share != int(share):
            raise InputError(f"ratio.{name}", f"expected a whole number from 1, got {shown(share)}")
    return [ratio.get(name, 1) for name in problem.types]


@dataclass(frozen=True)
class _Bundles:
    """Stages whose units grow together: ``shares`` is what each gets of one bundle."""

    problem: Problem
    stages: Sequence[StageTime]
    shares: Sequence[int]

    def units(self, count: int) -> list[int]:
        return [count * share for share in self.shares]

    def period(self, count: int) -> float:
        pairs = zip(self.stages, self.units(count), strict=True)
        return max(stage.period(units) for stage, units in pairs)

    @property
    def most(self) -> int:
        """As many as the limits allow."""
        taken: Counter[int] = Counter()
        for stage, share in zip(self.stages, self.shares, strict=True):
            taken[stage.type] += share
        limit = self.problem.kernel.limit
        return min(int(limit[index]) // units for index, units in taken.items())

    def fewest(self, period: float) -> int | None:
        """As few as keep the period; None where not even the most do."""
        most = self.most
        index = bisect_left(range(1, most + 1), True, key=lambda m: self.period(m) <= period)
        return index + 1 if index < most else None
