"""The default: the policy proposes, the exact search proves."""

from __future__ import annotations

from typing import ClassVar

from heterps.planning.plan import Plan
from heterps.planning.policy.features import features_of
from heterps.planning.policy.network import Policy
from heterps.planning.policy.pool import Pool
from heterps.planning.policy.proposals import first_samples
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.exact import ExactScheduler

_ROUNDS = 4


class AutoScheduler(Scheduler):
    """The pre-trained policy's plans, improved by a few looks around the best, become the plan to
    beat; with it the exact search prunes from its first step. ``max_work`` as in ExactScheduler."""

    name: ClassVar[str] = "auto"

    def __init__(self, seed: int = 0, max_work: int = ExactScheduler.MAX_WORK) -> None:
        self.seed = seed
        self.max_work = max_work

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        pool = Pool(problem.kernel)
        pool.add(first_samples(Policy.shipped("lstm"), features_of(problem.kernel), self.seed))
        for _ in range(_ROUNDS):
            if stop() or not pool.look_around(1):
                break
        exact = ExactScheduler(self.max_work)
        plan = exact.prove(problem, pool.elite(1), stop=stop, report=report)
        return plan.named(self.name, evaluations=plan.evaluations + pool.evaluations)
