"""The same problem with a limit, the floor or the allowed types changed, solved in bounded work."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heterps.planning import _native
from heterps.planning.kernel import Assignments, Kernel
from heterps.planning.plan import Plan, make_plan
from heterps.planning.schedulers.base import Stop, never

_SLICE = 2_000_000  # elementary steps between two looks at `stop`
EQUAL = 1e-6  # costs closer than this, relatively, are equal (docs/planning.md)


def variant(
    kernel: Kernel,
    *,
    limit: NDArray[np.int64] | None = None,
    max_period_s: float | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> Kernel:
    """A kernel with other limits, another longest period, or fewer types that may run a layer
    (``allowed`` is [layers, types]); what it leaves out stays as it is.
    """
    other = copy.copy(kernel)
    if limit is not None:
        other.limit = limit
    if max_period_s is not None:
        other.max_period_s = max_period_s
    if allowed is not None:
        other.runs = (kernel.runs.astype(np.bool_) & allowed).astype(np.uint8)
        other.reach = _cut(kernel.reach, other.runs)
    other.native = _native.Problem(
        other.compute,
        other.alpha,
        other.comm,
        other.beta,
        other.sync,
        other.transfer,
        other.transfer_beta,
        other.reach,
        other.runs,
        other.price,
        other.limit,
        other.overhead,
        other.max_period_s,
    )
    return other


def _cut(reach: NDArray[np.int32], runs: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Stages end at the first layer that their type may not run."""
    layers = len(runs)
    barred = np.where(runs == 0, np.arange(layers)[:, None], layers)
    first_barred = np.minimum.accumulate(barred[::-1], axis=0)[::-1]
    return np.ascontiguousarray(np.minimum(reach, first_barred), np.int32)


@dataclass(frozen=True)
class Solution:
    """The best assignment found (None if there is none), and what is proven about the cost of
    any, in dollars. ``work`` counts elementary steps.
    """

    assignment: Assignments | None
    cost: float
    lower_bound: float
    evaluations: int
    work: int

    @property
    def proven(self) -> bool:
        """Optimal, or known not to exist."""
        return self.lower_bound >= self.cost * (1 - EQUAL)


def solve(
    kernel: Kernel,
    incumbents: Assignments | None = None,
    *,
    max_work: int,
    stop: Stop = never,
) -> Solution:
    """The cheapest plan, as far as about ``max_work`` steps lead."""
    search = kernel.search()
    if incumbents is not None and len(incumbents):
        search.offer(kernel.native, np.ascontiguousarray(incumbents, np.int32))
    done = False
    while not done and search.work < max_work and not stop():
        done = search.run(min(_SLICE, max_work - search.work))
    found = search.found
    cost = search.cost * kernel.dollars if found else math.inf
    bound = cost if done else min(cost, search.lower_bound * kernel.dollars)
    assignment = np.array(search.assignment, np.int32) if found else None
    return Solution(assignment, cost, bound, search.evaluations, search.work)


def plan_of(kernel: Kernel, solution: Solution, method: str) -> Plan:
    """The solution, provisioned under the kernel's own limits and floor."""
    assert solution.assignment is not None, "a plan was found"
    units = [int(k) for k in kernel.provision(solution.assignment[None]).units[0] if k]
    proof: dict[str, Any] = {"evaluations": solution.evaluations}
    names = kernel.names(solution.assignment)
    plan = make_plan(kernel.problem, method, names, units, **proof)
    bound = plan.cost if solution.proven else min(plan.cost, solution.lower_bound)
    return make_plan(kernel.problem, method, names, units, lower_bound=bound, **proof)
