"""Greedy: layer after layer, the change that pays most, and never a step back."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices, ranks
from heterps.planning.schedulers.single_type import alone


class GreedyScheduler(Scheduler):
    """Starts with the best type for all layers. Then goes through the layers, front to back, and
    gives the layer, or it and all before or all behind it, the type that makes the plan cheapest;
    again from the front until a whole pass changes nothing, or ``max_passes`` are done.
    """

    name: ClassVar[str] = "greedy"

    def __init__(self, max_passes: int = 20) -> None:
        self.max_passes = max_passes

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        possible = np.zeros((problem.layers, len(problem.types)), bool)
        for layer, types in enumerate(options):
            possible[layer, types] = True
        incumbent = Incumbent(problem, self.name, None, report)
        current, rank = _best(incumbent, alone(options, len(problem.types)))
        for _ in range(self.max_passes):
            before = rank
            for layer in range(problem.layers):
                if incumbent.found and stop():
                    return incumbent.plan()
                tried, reached = _best(incumbent, _changes(current, layer, possible))
                if reached < rank:
                    current, rank = tried, reached
            if rank == before:
                break
        return incumbent.plan()


def _best(incumbent: Incumbent, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], float]:
    order = ranks(incumbent.price(rows))
    index = int(np.argmin(order))
    return rows[index], float(order[index])


def _changes(
    current: NDArray[np.int32], layer: int, possible: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Every type for the layer alone, for it and those before it, for it and those behind it, as
    far as they can have the type."""
    position = np.arange(len(current))
    spans = (position == layer, position <= layer, position >= layer)
    rows = [
        np.where(span & possible[:, index], index, current)
        for index in np.flatnonzero(possible[layer])
        for span in spans
    ]
    return np.array(rows, np.int32)
