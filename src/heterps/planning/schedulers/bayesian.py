"""Bayesian optimisation over stages: optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.errors import MissingExtraError
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices, ranks

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
except ImportError:
    raise MissingExtraError("the bayesian scheduler", "search") from None


class BayesianScheduler(Scheduler):
    """``evaluations`` trials, of which the first ``random_trials`` are random.

    The method suits few parameters, so it is given where up to ``stages`` stages begin and their
    types, not a type for each layer: plans with more stages are out of its reach. A layer that
    cannot run on the type of its stage takes the first it can. Plans that break a constraint are
    worse than any that does not, by how far they are from keeping it.
    """

    name: ClassVar[str] = "bayesian"

    def __init__(
        self, seed: int = 0, evaluations: int = 300, random_trials: int = 30, stages: int = 6
    ) -> None:
        self.seed = seed
        self.evaluations = evaluations
        self.random_trials = random_trials
        self.stages = stages

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        space = _space(options, min(self.stages, problem.layers))
        incumbent = Incumbent(problem, self.name, self.evaluations, report)
        with _silent():
            sampler = optuna.samplers.TPESampler(
                seed=self.seed % 2**32, n_startup_trials=self.random_trials
            )
            study = optuna.create_study(sampler=sampler)
            while incumbent.evaluations < self.evaluations and not (incumbent.found and stop()):
                trial = study.ask(space)
                provisions = incumbent.price(_assignment(options, trial.params)[None])
                study.tell(trial, float(ranks(provisions)[0]))
        return incumbent.plan()


def _space(options: Sequence[NDArray[np.int32]], stages: int) -> dict[str, BaseDistribution]:
    types = np.unique(np.concatenate(options)).tolist()
    space: dict[str, BaseDistribution] = {"type0": CategoricalDistribution(types)}
    for stage in range(1, stages):
        space[f"first{stage}"] = IntDistribution(1, len(options))
        space[f"type{stage}"] = CategoricalDistribution(types)
    return space


def _assignment(
    options: Sequence[NDArray[np.int32]], parameters: Mapping[str, Any]
) -> NDArray[np.int32]:
    """A row of type numbers; a stage that begins behind the last layer is empty."""
    stages = range(1 + len(parameters) // 2)
    begins = sorted((parameters.get(f"first{i}", 0), parameters[f"type{i}"]) for i in stages)
    row = np.empty(len(options), np.int32)
    for first, index in begins:
        row[first:] = index
    for layer, types in enumerate(options):
        if row[layer] not in types:
            row[layer] = types[0]
    return row


@contextmanager
def _silent() -> Iterator[None]:
    """Optuna logs every study; its level is put back as it was."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
