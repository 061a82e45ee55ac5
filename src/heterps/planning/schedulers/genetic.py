"""A genetic algorithm over assignments (pymoo)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from heterps.errors import MissingExtraError
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Report, Scheduler, Stop, ignore, never
from heterps.planning.schedulers.incumbent import Incumbent, choices, ranks
from heterps.planning.schedulers.random import random_assignments

try:
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.crossover import Crossover
    from pymoo.core.mutation import Mutation
    from pymoo.core.problem import Problem as Search
    from pymoo.core.sampling import Sampling
    from pymoo.core.termination import NoTermination
except ImportError:
    raise MissingExtraError("the genetic scheduler", "search") from None

_TRIES = 8  # at children that are not in the population yet; pymoo's 100 take long in small spaces
_Rows = NDArray[np.int32]
_Options = Sequence[NDArray[np.int32]]


class GeneticScheduler(Scheduler):
    """A gene is the type number of a layer. Children take a run of layers from their second parent;
    mutations give a short span one type. Plans that break a constraint lose
    against those that do not, and among themselves by how far they are from keeping it.
    """

    name: ClassVar[str] = "genetic"

    def __init__(self, seed: int = 0, evaluations: int = 5_000, population: int = 100) -> None:
        self.seed = seed
        self.evaluations = evaluations
        self.population = population

    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan:
        options = choices(problem)
        incumbent = Incumbent(problem, self.name, self.evaluations, report)
        algorithm = self._algorithm(options)
        while not (incumbent.found and stop()):
            population = algorithm.ask()
            children = 0 if population is None else len(population)
            # No child that has not been seen before: the space is exhausted.
            if not 0 < children <= self.evaluations - incumbent.evaluations:
                break
            rows = population.get("X").astype(np.int32)
            population.set("F", ranks(incumbent.price(rows))[:, None])
            algorithm.tell(infills=population)
        return incumbent.plan()

    def _algorithm(self, options: _Options) -> Any:
        algorithm = GA(
            pop_size=min(self.population, self.evaluations),
            sampling=_Drawn(options),
            crossover=_Span(),
            mutation=_Retype(options),
            eliminate_duplicates=True,
        )
        algorithm.mating.n_max_iterations = _TRIES
        search = Search(n_var=len(options), n_obj=1, xl=0, xu=max(map(np.max, options)), vtype=int)
        algorithm.setup(search, termination=NoTermination(), seed=self.seed)
        return algorithm


class _Drawn(Sampling):  # type: ignore[misc]
    def __init__(self, options: _Options) -> None:
        super().__init__()
        self.options = options

    def _do(self, _: Any, n_samples: int, *__: Any, random_state: Any = None, **___: Any) -> _Rows:
        return random_assignments(self.options, n_samples, random_state)


class _Span(Crossover):  # type: ignore[misc]
    """Both children swap the layers between two cuts, so that stages survive."""

    def __init__(self) -> None:
        super().__init__(n_parents=2, n_offsprings=2)

    def _do(self, _: Any, X: _Rows, *__: Any, random_state: Any = None, **___: Any) -> _Rows:
        _, matings, layers = X.shape
        cuts = np.sort(random_state.integers(layers + 1, size=(2, matings, 1)), axis=0)
        position = np.arange(layers)
        inside = (position >= cuts[0]) & (position < cuts[1])
        return np.where(inside, X[::-1], X)


class _Retype(Mutation):  # type: ignore[misc]
    """A short span of each child takes one type, as far as its layers can have it: every second
    time the type of the layer before the span, which moves a border."""

    def __init__(self, options: _Options) -> None:
        super().__init__()
        self.options = options

    def _do(self, _: Any, X: _Rows, *__: Any, random_state: Any = None, **___: Any) -> _Rows:
        changed = X.copy()
        for row in changed:
            first = int(random_state.integers(len(row)))
            kind = random_state.choice(self.options[first])
            if first > 0 and random_state.random() < 0.5:
                kind = row[first - 1]
            for layer in range(first, min(first + int(random_state.geometric(0.4)), len(row))):
                if kind in self.options[layer]:
                    row[layer] = kind
        return changed
