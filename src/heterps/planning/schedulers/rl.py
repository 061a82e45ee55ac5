"""Reinforcement learning: a recurrent policy over the layers, pre-trained, then tuned by REINFORCE.

The pre-trained policy proposes in numpy. Tuning (torch) repeats: sample plans, price them, look
around the best plans known, make good samples likelier and imitate the best plans. Beside that the
policy is asked about problems a little different from this one, and what it says is improved apart
from the plans known, so that the search does not stay where it began.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from heterps.planning.plan import Plan
from heterps.planning.policy.features import Features, features_of
from heterps.planning.policy.learner import Adviser, Learner, one_thread
from heterps.planning.policy.network import Policy
from heterps.planning.policy.pool import Pool
from heterps.planning.policy.proposals import eased, first_samples
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.schedulers.base import Progress, Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import nothing_found

_ELITE = 8
_SAMPLES_APART = 32
_LOOKS_APART = 9
_RECOMBINE_EVERY = 6


class PolicyScheduler(Scheduler):
    """``steps`` of tuning with ``samples`` plans each, fewer where they have taken
    ``max_evaluations``; ``look_around`` of the best plans have all their neighbours priced with
    each step. ``policy`` replaces the pre-trained one, to go on from a policy that was saved."""

    cell: ClassVar[str]
    pretrained: ClassVar[bool] = True

    def __init__(
        self,
        seed: int = 0,
        steps: int = 40,
        samples: int = 64,
        look_around: int = 2,
        rate: float = 5e-3,
        max_evaluations: int = 250_000,
        policy: Policy | None = None,
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.samples = samples
        self.look_around = look_around
        self.rate = rate
        self.max_evaluations = max_evaluations
        self.policy = policy

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        return self.tune(problem, stop=stop, report=report)[0]

    def tune(
        self, problem: Problem, *, stop: Stop = never, report: Report = ignore
    ) -> tuple[Plan, Policy]:
        """The plan, and the policy as it was tuned on the problem."""
        features = features_of(problem.kernel)
        policy = self.policy or self._start()
        pool = Pool(problem.kernel)
        pool.add(first_samples(policy, features, self.seed))
        if self.steps and not (stop() and pool.best is not None):
            policy = self._tune(policy, features, pool, stop, report)
        return self._plan_of(problem, pool), policy

    def _tune(
        self, policy: Policy, features: Features, pool: Pool, stop: Stop, report: Report
    ) -> Policy:
        with one_thread():
            learner = Learner(policy, features, seed=self.seed, rate=self.rate)
            rng = np.random.default_rng([19, self.seed])
            adviser = Adviser(policy, pool.kernel, rng)
            for step in range(self.steps):
                if (stop() and pool.best is not None) or pool.evaluations >= self.max_evaluations:
                    break
                self._learn(learner, pool)
                self._explore(step, adviser, pool, rng)
                cost = pool.cost if np.isfinite(pool.cost) else None
                report(Progress(step + 1, self.steps, cost))
            return learner.policy

    def _start(self) -> Policy:
        if self.pretrained:
            return Policy.shipped(self.cell)
        return Policy.untrained(self.cell, self.seed)

    def _learn(self, learner: Learner, pool: Pool) -> None:
        plans = learner.propose(self.samples)
        scores = pool.add(plans)
        pool.look_around(self.look_around)
        learner.learn(plans, scores, imitate=pool.elite(_ELITE))

    def _explore(self, step: int, adviser: Adviser, pool: Pool, rng: np.random.Generator) -> None:
        wider = eased(pool.kernel, rng)
        pool.look_for_exchanges(wider)
        pool.descend_apart(adviser.propose(_SAMPLES_APART), _LOOKS_APART, wider)
        if step % _RECOMBINE_EVERY == _RECOMBINE_EVERY - 1:
            pool.recombine()

    def _plan_of(self, problem: Problem, pool: Pool) -> Plan:
        if pool.best is None:
            raise nothing_found(problem, self.name, pool.evaluations)
        plan = provision(problem, problem.kernel.names(pool.best))
        return plan.named(self.name, evaluations=pool.evaluations)


class LstmScheduler(PolicyScheduler):
    """The paper's method: an LSTM, pre-trained on random problems and tuned on this one."""

    name: ClassVar[str] = "rl-lstm"
    cell: ClassVar[str] = "lstm"


class RnnScheduler(PolicyScheduler):
    """The same with a plain recurrent cell, to see what the LSTM is worth."""

    name: ClassVar[str] = "rl-rnn"
    cell: ClassVar[str] = "rnn"


class ScratchScheduler(PolicyScheduler):
    """The LSTM without pre-training, to see what that is worth."""

    name: ClassVar[str] = "rl-scratch"
    cell: ClassVar[str] = "lstm"
    pretrained: ClassVar[bool] = False
