"""What a plan costs: per stage and in total, as values with named parts (docs/planning.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from heterps.planning.problem import Problem


@dataclass(frozen=True)
class StageCost:
    """Layers ``first`` to ``last`` (inclusive) on ``units`` of a type; seconds are per batch."""

    first: int
    last: int
    type: str
    units: int
    compute_s: float
    comm_s: float
    throughput: float | None
    dollars: float

    @property
    def period_s(self) -> float:
        return max(self.compute_s, self.comm_s)

    @property
    def bound_by(self) -> str:
        return "compute" if self.compute_s >= self.comm_s else "communication"


@dataclass(frozen=True)
class Cost:
    """The bill and the speed of a plan. ``throughput`` is None where nothing takes time."""

    stages: tuple[StageCost, ...]
    throughput: float | None
    seconds: float
    overhead_dollars: float
    dollars: float
    dollars_per_million_samples: float

    @property
    def hours(self) -> float:
        return self.seconds / 3600


@dataclass(frozen=True)
class Stage:
    """A maximal run of neighbouring layers on one type; ``last`` is inclusive."""

    first: int
    last: int
    type: str


def stages_of(assignment: Sequence[str]) -> tuple[Stage, ...]:
    stages, first = [], 0
    for name, run in groupby(assignment):
        length = sum(1 for _ in run)
        stages.append(Stage(first, first + length - 1, name))
        first += length
    return tuple(stages)


def evaluate(problem: Problem, assignment: Sequence[str], units: Sequence[int]) -> Cost:
    """The cost of a plan, one number of units per stage; constraints are not checked here."""
    stages = stages_of(assignment)
    assert len(units) == len(stages), "one number of units per stage"
    times = [stage_times(problem, stage, k) for stage, k in zip(stages, units, strict=True)]
    workload = problem.workload
    period = max(max(pair) for pair in times)
    seconds = workload.samples * period / workload.batch_size
    price = {entry.name: entry.price_per_hour for entry in problem.cluster.types}
    costs = tuple(
        StageCost(
            stage.first,
            stage.last,
            stage.type,
            k,
            compute_s,
            comm_s,
            _rate(workload.batch_size, max(compute_s, comm_s)),
            seconds / 3600 * price[stage.type] * k,
        )
        for stage, k, (compute_s, comm_s) in zip(stages, units, times, strict=True)
    )
    overhead = seconds / 3600 * workload.overhead_per_hour
    dollars = overhead + sum(stage.dollars for stage in costs)
    million = workload.samples / 1e6
    return Cost(
        costs,
        _rate(workload.batch_size, period),
        seconds,
        overhead,
        dollars,
        dollars / million if million else 0.0,
    )


def stage_times(problem: Problem, stage: Stage, units: int) -> tuple[float, float]:
    """Seconds of compute and of communication for one batch."""
    layers = problem.profile.layers
    scale = problem.workload.batch_size / problem.profile.batch_size
    compute = comm = sync = 0.0
    for layer in layers[stage.first : stage.last + 1]:
        on = layer.on[stage.type]
        compute += amdahl(on.compute_s, on.alpha, units)
        comm += amdahl(on.comm_s, on.beta, units)
        sync += on.sync_s
    comm += transfer_time(problem, stage.first, stage.type, units)
    comm += transfer_time(problem, stage.last + 1, stage.type, units)
    return scale * compute, scale * comm + sync


def amdahl(seconds: float, parallel: float, units: int) -> float:
    """Time on ``units`` of what takes ``seconds`` on one and parallelises by that share."""
    return seconds * (1 - parallel + parallel / units)


def transfer_time(problem: Problem, layer: int, type_name: str, units: int) -> float:
    """For a profile batch over the cut before ``layer``; 0 at both ends of the model."""
    if not 0 < layer < problem.layers:
        return 0.0
    entry = problem.profile.layers[layer]
    figures = entry.on.get(type_name) or entry.send.get(type_name)
    return amdahl(figures.transfer_s, figures.beta, units) if figures else 0.0


def _rate(batch_size: int, period_s: float) -> float | None:
    return batch_size / period_s if period_s > 0 else None
