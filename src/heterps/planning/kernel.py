"""The problem as arrays, and the native code that works on them in batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heterps.planning import _native

if TYPE_CHECKING:
    from heterps.planning.problem import Problem
    from heterps.planning.profile import LayerOnType, SendFigures

Assignments = NDArray[np.int32]
STATUS = ("feasible", "layer", "memory", "limit", "throughput")


@dataclass(frozen=True)
class Provisions:
    """The cheapest provision of each of many assignments.

    ``status`` indexes STATUS; ``cost`` is in dollars, infinite where it is not feasible;
    ``period_s`` is the time of a batch (where the floor is missed, about the shortest);
    ``violation`` grows with the distance from feasibility; ``units`` holds one column a stage, then
    zeros.
    """

    status: NDArray[np.int32]
    cost: NDArray[np.float64]
    period_s: NDArray[np.float64]
    violation: NDArray[np.float64]
    units: NDArray[np.int64]

    @property
    def feasible(self) -> NDArray[np.bool_]:
        feasible: NDArray[np.bool_] = self.status == 0
        return feasible


class Kernel:
    """Arrays are [layers, types]; times are for one batch of the workload on one unit."""

    def __init__(self, problem: Problem) -> None:
        workload = problem.workload
        shape = (problem.layers, len(problem.types))
        scale = workload.batch_size / problem.profile.batch_size
        self.problem = problem
        self.runs = np.zeros(shape, np.uint8)
        self.compute, self.alpha, self.comm, self.beta = (np.zeros(shape) for _ in range(4))
        self.sync, self.transfer, self.transfer_beta = (np.zeros(shape) for _ in range(3))
        for at, on in _entries(problem):
            self.runs[at] = 1
            self.compute[at], self.alpha[at] = on.compute_s * scale, on.alpha
            self.comm[at], self.beta[at] = on.comm_s * scale, on.beta
            self.sync[at] = on.sync_s
            self.transfer[at], self.transfer_beta[at] = on.transfer_s * scale, on.beta
        for at, send in _send_entries(problem):
            self.transfer[at], self.transfer_beta[at] = send.transfer_s * scale, send.beta
        self.price = np.array([entry.price_per_hour for entry in problem.cluster.types], np.float64)
        self.limit = np.array([entry.limit for entry in problem.cluster.types], np.int64)
        self.reach = _reach(problem, self.runs)
        floor = workload.min_throughput
        self.max_period_s = workload.batch_size / floor if floor > 0 else math.inf
        self.overhead = workload.overhead_per_hour
        # Native costs are dollars per hour times seconds per batch.
        self.dollars = workload.samples / workload.batch_size / 3600
        self.native = self.build()

    def build(self) -> _native.Problem:
        """The native form of the arrays as they stand."""
        return _native.Problem(
            self.compute,
            self.alpha,
            self.comm,
            self.beta,
            self.sync,
            self.transfer,
            self.transfer_beta,
            self.reach,
            self.runs,
            self.price,
            self.limit,
            self.overhead,
            self.max_period_s,
        )

    def provision(
        self, assignments: Assignments, *, fastest: bool = False, worth: float = math.inf
    ) -> Provisions:
        """Exact and cheapest for each row of type numbers; with ``fastest`` period and units are
        those of the shortest period within the limits instead. Rows that cannot cost less than
        ``worth`` (dollars) are not priced to the end: their cost may come out too high."""
        count = len(assignments)
        status = np.empty(count, np.int32)
        cost, period, violation = (np.empty(count) for _ in range(3))
        units = np.empty((count, self.problem.layers), np.int64)
        rows = np.ascontiguousarray(assignments, np.int32)
        enough = worth / self.dollars if self.dollars > 0 else math.inf
        self.native.provision(rows, status, cost, period, violation, units, fastest, enough)
        cost = np.where(status == 0, cost * self.dollars, np.inf)
        return Provisions(status, cost, period, violation, units)

    def search(self) -> _native.Search:
        return _native.Search(self.native)

    def names(self, assignment: Assignments) -> tuple[str, ...]:
        return tuple(self.problem.types[index] for index in assignment)


def _entries(problem: Problem) -> Iterator[tuple[tuple[int, int], LayerOnType]]:
    for layer, entry in enumerate(problem.profile.layers):
        for index, name in enumerate(problem.types):
            if name in entry.on:
                yield (layer, index), entry.on[name]


def _send_entries(problem: Problem) -> Iterator[tuple[tuple[int, int], SendFigures]]:
    for layer, entry in enumerate(problem.profile.layers):
        for index, name in enumerate(problem.types):
            if name not in entry.on and name in entry.send:
                yield (layer, index), entry.send[name]


def _reach(problem: Problem, runs: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The end (exclusive) of the longest stage from each layer on each type, by figures and
    memory. Bytes are added and compared exactly."""
    reach = np.zeros(runs.shape, np.int32)
    held = [Fraction(layer.held_bytes) for layer in problem.profile.layers]
    for index, entry in enumerate(problem.cluster.types):
        memory = None if entry.memory_gib is None else Fraction(entry.memory_gib) * 2**30
        end, total = 0, Fraction(0)
        for first in range(problem.layers):
            if end < first:
                end, total = first, Fraction(0)
            while end < problem.layers and runs[end, index]:
                if memory is not None and total + held[end] > memory:
                    break
                total += held[end]
                end += 1
            reach[first, index] = end
            if end > first:
                total -= held[first]
    return reach
