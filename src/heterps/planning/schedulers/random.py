"""Random search: the yardstick for every method that claims to learn something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices

_BATCH = 256


class RandomScheduler(Scheduler):
    """The best of ``evaluations`` random assignments, of few long stages up to many short ones."""

    name: ClassVar[str] = "random"

    def __init__(self, seed: int = 0, evaluations: int = 10_000) -> None:
        self.seed = seed
        self.evaluations = evaluations

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        rng = np.random.default_rng([23, self.seed])
        incumbent = Incumbent(problem, self.name, self.evaluations, report)
        while incumbent.evaluations < self.evaluations and not (incumbent.found and stop()):
            count = min(_BATCH, self.evaluations - incumbent.evaluations)
            incumbent.price(random_assignments(options, count, rng))
        return incumbent.plan()


def random_assignments(
    options: Sequence[NDArray[np.int32]], count: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Rows of type numbers. Each layer draws one of its ``options``, but stays with the type of the
    layer before, where it can, with a probability that each row draws for itself.
    """
    stays = rng.random(count)
    rows = np.empty((count, len(options)), np.int32)
    for layer, types in enumerate(options):
        rows[:, layer] = types[rng.integers(len(types), size=count)]
        if layer > 0:
            before = rows[:, layer - 1]
            same = (rng.random(count) < stays) & np.isin(before, types)
            rows[same, layer] = before[same]
    return rows
