"""A plan at work: what a run of it would reach, with fill and drain, whole micro-batches, credits,
commits, jitter and stragglers. Nothing here is measured: times come from the profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from heterps.errors import InputError
from heterps.planning.conditions import Conditions
from heterps.planning.cost_model import Stage
from heterps.planning.pipeline_run import PipelineRun
from heterps.planning.plan import Plan
from heterps.planning.ports import Places, more_than_layers, places_of
from heterps.planning.problem import Problem
from heterps.planning.replica_queue import Shape
from heterps.planning.service_times import ServiceTimes, service_times
from heterps.planning.simulation import Simulation

MIN_LANES = 16  # as in a run
_EVENTS = 400_000  # what a simulation of unsaid length is cut to, about


def simulate(
    problem: Problem,
    plan: Plan,
    conditions: Conditions | None = None,
    *,
    staleness: int | None = None,
    micro_batches: int | None = None,
    batches: int | None = None,
    lanes: int | None = None,
) -> Simulation:
    """``staleness`` and ``micro_batches`` are by default the workload's, ``lanes`` those of a run,
    and ``batches`` as many as it takes to settle. Raises InputError for what no run can be."""
    workload = problem.workload
    shape = Shape(
        lanes or max(MIN_LANES, *(entry.limit for entry in problem.cluster.types)),
        plan.units,
        micro_batches or workload.micro_batches,
        workload.staleness if staleness is None else staleness,
        batches or 1,
    )
    _check(shape, conditions or Conditions())
    shape = shape if batches else shape.lasting(enough_batches(shape))
    units = [(stage.type, stage.units) for stage in plan.stages]
    places = places_of(problem.profile, units)
    about = partial(service_times, problem, ports=places is not None)
    times = [
        about(Stage(s.first, s.last, s.type), s.units, shape.micro_batches, *more)
        for s, more in zip(plan.stages, more_than_layers(problem.profile, units), strict=True)
    ]
    return simulate_stages(
        times,
        shape,
        conditions,
        micro_batch_size=workload.batch_size / shape.micro_batches,
        predicted=plan.throughput,
        places=places,
    )


def simulate_stages(
    times: Sequence[ServiceTimes],
    shape: Shape,
    conditions: Conditions | None = None,
    *,
    micro_batch_size: float = 1.0,
    predicted: float | None = None,
    places: Places | None = None,
) -> Simulation:
    """The same from the times of stages; ``predicted`` is what the result is set beside."""
    apart = places.far if places else any(stage.way_s > 0 for stage in times)
    shape = replace(shape, far=shape.far or apart)
    run = PipelineRun(times, shape, conditions or Conditions(), places)
    run.to_the_end()
    return run.found(micro_batch_size, predicted)


def enough_batches(shape: Shape) -> int:
    """To settle in, to measure over (a cycle of the lanes if that is short), and to drain."""
    cycle = shape.lanes // math.gcd(shape.lanes, shape.micro_batches)
    affordable = _EVENTS // (8 * len(shape.replicas) * shape.micro_batches)
    least = least_batches(shape.staleness)
    return max(least, min(affordable, least + 2 * max(cycle, 20)))


def least_batches(staleness: int) -> int:
    """Such that whole cycles of overlapping batches lie between filling and draining."""
    return 6 * (staleness + 2)


def _check(shape: Shape, conditions: Conditions) -> None:
    for number, units in enumerate(shape.replicas):
        path = f"plan.stages[{number}].units"
        if units > shape.micro_batches and shape.staleness == 0:
            said = f"{units} replicas share {shape.micro_batches} micro-batches of a batch"
            fix = f"set workload.micro_batches to {units} or more, or use a staleness"
            raise InputError(path, f"{said}: {fix}")
        if units > shape.lanes:
            raise InputError(path, f"expected {shape.lanes} or less (one per lane), got {units}")
    for stage, replica in conditions.slow:
        if stage >= len(shape.replicas) or replica >= shape.replicas[stage]:
            there = ", ".join(str(units) for units in shape.replicas)
            said = f"there is no replica {replica} of stage {stage}"
            raise InputError("slow", f"{said}; the stages of the plan have {there} of them")
