"""The slow, obviously right way: every whole number of units, every assignment.

It follows docs/planning.md line by line in plain Python and shares nothing with the cost model and
the native code, whose test oracle it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, product

from heterps.planning.problem import Problem

SLACK = 1e-9
_REASONS = ("layer", "memory", "limit", "throughput")  # in the order in which they apply


@dataclass(frozen=True)
class Answer:
    """The cheapest plan, or the ``reason`` why there is none. ``period_s`` is the time of a batch,
    with reason ``throughput`` the shortest that can be reached; ``cost`` is in dollars.
    """

    cost: float = math.inf
    assignment: tuple[str, ...] = ()
    units: tuple[int, ...] = ()
    period_s: float = math.inf
    reason: str | None = None


@dataclass(frozen=True)
class _Stage:
    """Layers ``first`` up to but excluding ``end`` on a type."""

    first: int
    end: int
    type: str


def cheapest_units(problem: Problem, assignment: Sequence[str]) -> Answer:
    """Tries the period of every stage at every whole number of units as the target."""
    stages = _stages(assignment)
    reason = _misfit(problem, assignment, stages)
    if reason:
        return Answer(assignment=tuple(assignment), reason=reason)
    limits = {entry.name: entry.limit for entry in problem.cluster.types}
    table = [
        [period_of(problem, s.first, s.end, s.type, k) for k in range(1, limits[s.type] + 1)]
        for s in stages
    ]
    best = Answer(assignment=tuple(assignment), reason="throughput")
    for target in {period for periods in table for period in periods}:
        units = [_fewest(periods, target) for periods in table]
        if not _within(units, stages, limits):
            continue
        period = max(periods[k - 1] for periods, k in zip(table, units, strict=True))
        best = _better(best, _priced(problem, tuple(assignment), units, period))
    return best


def cheapest_plan(problem: Problem) -> Answer:
    """Tries every assignment; the reason is that of the assignment which comes furthest."""
    best = Answer(reason="layer")
    for assignment in product(problem.types, repeat=problem.layers):
        best = _better(best, cheapest_units(problem, assignment))
    return best


def faults(problem: Problem, assignment: Sequence[str], units: Sequence[int]) -> list[str]:
    """Every constraint that a plan breaks, in words."""
    stages = _stages(assignment)
    if len(assignment) != problem.layers or len(units) != len(stages):
        return ["the assignment or the units have the wrong length"]
    found = [f"{k} units are not a whole number from 1 up" for k in units if k < 1 or k != int(k)]
    reason = _misfit(problem, assignment, stages)
    if reason or found:
        return [*found, *([reason] if reason else [])]
    limits = {entry.name: entry.limit for entry in problem.cluster.types}
    if not _within(units, stages, limits):
        found.append("limit")
    if problem.workload.batch_size < _floor(problem) * plan_period(problem, assignment, units):
        found.append("throughput")
    return found


def plan_period(problem: Problem, assignment: Sequence[str], units: Sequence[int]) -> float:
    """Seconds per batch of the slowest stage."""
    pairs = zip(_stages(assignment), units, strict=True)
    return max(period_of(problem, s.first, s.end, s.type, k) for s, k in pairs)


def plan_cost(problem: Problem, assignment: Sequence[str], units: Sequence[int]) -> float:
    """Dollars."""
    workload = problem.workload
    price = {entry.name: entry.price_per_hour for entry in problem.cluster.types}
    pairs = zip(_stages(assignment), units, strict=True)
    per_hour = workload.overhead_per_hour + sum(price[s.type] * k for s, k in pairs)
    batches = workload.samples / workload.batch_size
    return batches * plan_period(problem, assignment, units) / 3600 * per_hour


def period_of(problem: Problem, first: int, end: int, type_name: str, units: int) -> float:
    """Seconds per batch of the layers ``first`` up to but excluding ``end`` on ``units``."""
    layers = problem.profile.layers
    ratio = problem.workload.batch_size / problem.profile.batch_size
    compute = comm = sync = 0.0
    for layer in range(first, end):
        on = layers[layer].on[type_name]
        compute += _part(on.compute_s, on.alpha, units)
        comm += _part(on.comm_s, on.beta, units)
        sync += on.sync_s
    for border in (first, end):
        if 0 < border < len(layers):
            comm += _transfer(problem, border, type_name, units)
    return max(ratio * compute, ratio * comm + sync)


def _transfer(problem: Problem, layer: int, type_name: str, units: int) -> float:
    entry = problem.profile.layers[layer]
    if type_name in entry.on:
        return _part(entry.on[type_name].transfer_s, entry.on[type_name].beta, units)
    if type_name in entry.send:
        return _part(entry.send[type_name].transfer_s, entry.send[type_name].beta, units)
    return 0.0


def _part(seconds: float, share: float, units: int) -> float:
    return seconds * (1 - share + share / units)


def _stages(assignment: Sequence[str]) -> list[_Stage]:
    stages = []
    for name, run in groupby(range(len(assignment)), key=lambda layer: assignment[layer]):
        layers = list(run)
        stages.append(_Stage(layers[0], layers[-1] + 1, name))
    return stages


def _misfit(problem: Problem, assignment: Sequence[str], stages: Sequence[_Stage]) -> str | None:
    """What rules the assignment out whatever the units, in the order of the reasons."""
    layers = problem.profile.layers
    if any(name not in layer.on for layer, name in zip(layers, assignment, strict=True)):
        return "layer"
    for entry in problem.cluster.types:
        if entry.memory_gib is None:
            continue
        memory = Fraction(entry.memory_gib) * 2**30
        if any(_held(problem, s) > memory for s in stages if s.type == entry.name):
            return "memory"
    count = Counter(stage.type for stage in stages)
    if any(count[entry.name] > entry.limit for entry in problem.cluster.types):
        return "limit"
    return None


def _held(problem: Problem, stage: _Stage) -> Fraction:
    layers = problem.profile.layers[stage.first : stage.end]
    return sum((Fraction(x.weight_bytes) for x in layers if x.kind != "embedding"), Fraction(0))


def _fewest(periods: Sequence[float], target: float) -> int:
    """0 where no number of units up to the limit will do."""
    enough = (k for k, period in enumerate(periods, 1) if period <= target * (1 + SLACK))
    return next(enough, 0)


def _within(units: Sequence[int], stages: Sequence[_Stage], limits: dict[str, int]) -> bool:
    used: Counter[str] = Counter()
    for stage, k in zip(stages, units, strict=True):
        used[stage.type] += k
    return all(units) and all(used[name] <= limit for name, limit in limits.items())


def _priced(
    problem: Problem, assignment: tuple[str, ...], units: Sequence[int], period: float
) -> Answer:
    if problem.workload.batch_size < _floor(problem) * period:
        return Answer(math.inf, assignment, (), period, "throughput")
    cost = plan_cost(problem, assignment, units)
    return Answer(cost, assignment, tuple(units), period)


def _floor(problem: Problem) -> float:
    return problem.workload.min_throughput * (1 - SLACK)


def _better(one: Answer, other: Answer) -> Answer:
    """The cheaper of two; without a plan, the one that comes further, then the faster."""

    def rank(answer: Answer) -> tuple[int, float, float]:
        stage = len(_REASONS) if answer.reason is None else _REASONS.index(answer.reason)
        return (-stage, answer.cost, answer.period_s)

    return min(one, other, key=rank)
