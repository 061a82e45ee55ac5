"""The rule of thumb: embedding tables on CPU cores, everything else on the fastest accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices

_MUCH_SLOWER = 4.0


class HeuristicScheduler(Scheduler):
    """Embedding layers on the cheapest CPU-like type, the rest on the fastest type.

    CPU-like is a type with ``device: cpu`` in the cluster. Where no type states its device, it is
    one whose unit computes at least four times slower than the fastest; where there is none, any
    type is. A layer that cannot run on the chosen type gets the next in the same order. Where the
    plan is not feasible, the second fastest type takes the place of the fastest, and so on.
    """

    name: ClassVar[str] = "heuristic"

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        slowness = _slowness(problem)
        fastest_first = np.argsort(slowness, kind="stable")
        cpu_like = cpu_like_types(problem, slowness)
        price = problem.kernel.price
        # Types that are not CPU-like come last, the cheapest of them first.
        hosts = sorted(range(len(price)), key=lambda index: (index not in cpu_like, price[index]))
        rows = [
            _assignment(problem, options, hosts, np.roll(fastest_first, -start).tolist())
            for start in range(len(fastest_first))
        ]
        incumbent = Incumbent(problem, self.name, len(rows), report)
        for row in rows:
            incumbent.price(row[None])
            if incumbent.found:
                break
        return incumbent.plan()


def cpu_like_types(problem: Problem, slowness: NDArray[np.float64]) -> set[int]:
    """The numbers of the types that count as CPUs."""
    types = problem.cluster.types
    if any("device" in entry.model_fields_set for entry in types):
        named = {index for index, entry in enumerate(types) if entry.device == "cpu"}
    else:
        named = {int(index) for index in np.flatnonzero(slowness >= _MUCH_SLOWER)}
    return named or set(range(len(types)))


def _slowness(problem: Problem) -> NDArray[np.float64]:
    """Per type: how many times longer one unit computes than the fastest unit of each layer, over
    the layers it can run, embeddings aside; infinite for a type that can run none of them.
    """
    kernel = problem.kernel
    usable = kernel.runs.astype(bool) & (kernel.limit > 0)
    dense = np.array([layer.kind != "embedding" for layer in problem.profile.layers])
    if (usable & dense[:, None]).any():
        usable &= dense[:, None]
    fastest = np.where(usable, kernel.compute, np.inf).min(axis=1)
    own = np.where(usable, kernel.compute, 0.0).sum(axis=0)
    least = np.where(usable, fastest[:, None], 0.0).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(own > least, own / least, 1.0)
    return np.where(usable.any(axis=0), ratio, np.inf)


def _assignment(
    problem: Problem,
    options: Sequence[NDArray[np.int32]],
    hosts: Sequence[int],
    fast: Sequence[int],
) -> NDArray[np.int32]:
    """Each layer takes the first type of its order that it can have."""
    row = []
    for layer, types in zip(problem.profile.layers, options, strict=True):
        order = hosts if layer.kind == "embedding" else fast
        row.append(next(index for index in order if index in types))
    return np.array(row, np.int32)
