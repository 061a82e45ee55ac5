"""Bayesian optimisation over assignments: optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.errors import MissingExtraError
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices, ranks
from heterps.planning.schedulers.random import random_assignments

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution
except ImportError:
    raise MissingExtraError("the bayesian scheduler", "search") from None


class BayesianScheduler(Scheduler):
    """A type per layer as a categorical parameter, ``evaluations`` trials, of which the first
    ``random_trials`` are random assignments. Plans that break a constraint are worse than any that
    does not, by how far they are from keeping it.
    """

    name: ClassVar[str] = "bayesian"

    def __init__(self, seed: int = 0, evaluations: int = 300, random_trials: int = 30) -> None:
        self.seed = seed
        self.evaluations = evaluations
        self.random_trials = random_trials

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        incumbent = Incumbent(problem, self.name, self.evaluations, report)
        names = [f"layer{index}" for index in range(problem.layers)]
        space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(types.tolist())
            for name, types in zip(names, options, strict=True)
        }
        with _silent():
            study = self._study(names, options)
            while incumbent.evaluations < self.evaluations and not (incumbent.found and stop()):
                trial = study.ask(space)
                row = np.array([[trial.params[name] for name in names]], np.int32)
                study.tell(trial, float(ranks(incumbent.price(row))[0]))
        return incumbent.plan()

    def _study(self, names: Sequence[str], options: Sequence[NDArray[np.int32]]) -> optuna.Study:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=self.seed))
        rng = np.random.default_rng([29, self.seed])
        for row in random_assignments(options, self.random_trials, rng):
            study.enqueue_trial(dict(zip(names, row.tolist(), strict=True)))
        return study


@contextmanager
def _silent() -> Iterator[None]:
    """Optuna logs every study; its level is put back as it was."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
