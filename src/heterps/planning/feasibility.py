"""Why there is no plan, and how fast any plan could be."""

from __future__ import annotations

import math

import numpy as np

from heterps.errors import InfeasibleError
from heterps.planning.kernel import STATUS
from heterps.planning.problem import Problem


def shortest_period(problem: Problem, precision: float = 0.0, label_cap: int = 100_000) -> float:
    """Seconds per batch of the fastest plan within limits and memory, whatever it costs; infinite
    where no plan fits. Some plan always keeps the period; where limits bind hard, ``label_cap``
    bounds what is spent on looking for a slightly faster one."""
    return problem.kernel.search().shortest_period(precision, label_cap)[0]


def max_throughput(problem: Problem) -> float | None:
    """The largest reachable throughput (samples per second); None where nothing takes time."""
    return _rate(problem, shortest_period(problem))


def _rate(problem: Problem, period_s: float) -> float | None:
    return problem.workload.batch_size / period_s if period_s > 0 else None


def why_infeasible(problem: Problem) -> InfeasibleError:
    """The first reason that applies, for a problem that has no feasible plan."""
    for index, layer in enumerate(problem.profile.layers):
        if not layer.on:
            return InfeasibleError(
                "layer", f"profile.layers[{index}] ('{layer.name}') has figures for no type"
            )
    stuck = _stuck_at(problem)
    if stuck is not None:
        name = problem.profile.layers[stuck].name
        return InfeasibleError(
            "memory",
            f"profile.layers[{stuck}] ('{name}') fits in no unit that could run it; "
            "cluster.types[].memory_gib is too small",
        )
    period = shortest_period(problem)
    if math.isinf(period):
        limits = ", ".join(f"{entry.name} {entry.limit}" for entry in problem.cluster.types)
        return InfeasibleError(
            "limit", f"no plan fits cluster.types[].limit even with the fewest units ({limits})"
        )
    reached = _rate(problem, period)
    return InfeasibleError(
        "throughput",
        f"workload.min_throughput is {problem.workload.min_throughput:g} samples/s, "
        f"and {reached:.6g} is the most that the limits allow",
        reached,
    )


def _stuck_at(problem: Problem) -> int | None:
    """The layer that no chain of stages gets past, limits aside; None if one reaches the end."""
    kernel, layers = problem.kernel, problem.layers
    reachable: list[set[int]] = [set() for _ in range(layers + 1)]
    reachable[0].add(-1)
    furthest = 0
    for first in range(layers):
        for index in range(len(problem.types)):
            if reachable[first] - {index}:
                for end in range(first + 1, int(kernel.reach[first, index]) + 1):
                    reachable[end].add(index)
                    furthest = max(furthest, end)
    return None if reachable[layers] else min(furthest, layers - 1)


def why_assignment_infeasible(
    problem: Problem, assignment: np.ndarray, status: int, period_s: float
) -> InfeasibleError:
    """The same for one assignment (type numbers) that was provisioned to ``status``."""
    reason = STATUS[status]
    reached = _rate(problem, period_s) if reason == "throughput" else None
    detail = {
        "layer": "the assignment puts a layer on a type that has no figures for it",
        "memory": "a stage of the assignment does not fit in its type's memory_gib",
        "limit": "the assignment has more stages of a type than its limit",
        "throughput": f"workload.min_throughput is {problem.workload.min_throughput:g} samples/s, "
        f"and the assignment reaches {reached or math.inf:.6g} at the most",
    }[reason]
    if reason == "layer":
        for layer, index in enumerate(assignment):
            if not problem.kernel.runs[layer, index]:
                name = problem.types[index]
                detail = f"assignment[{layer}] is '{name}', which has no figures for that layer"
                break
    return InfeasibleError(reason, detail, reached)
