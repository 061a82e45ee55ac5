"""Every scheduler by name, loaded when asked for: some need torch or an optional dependency."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from heterps.errors import UnknownNameError
from heterps.planning.schedulers.base import Progress, Report, Scheduler, Stop

_PLACES = {
    "auto": "auto:AutoScheduler",
    "exact": "exact:ExactScheduler",
    "rl-lstm": "rl:LstmScheduler",
    "rl-rnn": "rl:RnnScheduler",
    "rl-scratch": "rl:ScratchScheduler",
    "greedy": "greedy:GreedyScheduler",
    "genetic": "genetic:GeneticScheduler",
    "bayesian": "bayesian:BayesianScheduler",
    "random": "random:RandomScheduler",
    "single-type": "single_type:SingleTypeScheduler",
    "heuristic": "heuristic:HeuristicScheduler",
    "brute-force": "brute_force:BruteForceScheduler",
}
METHODS = tuple(_PLACES)


def scheduler_class(method: str) -> type[Scheduler]:
    """Raises UnknownNameError, and MissingExtraError where an optional dependency is missing."""
    if method not in _PLACES:
        raise UnknownNameError("method", "method", method, METHODS)
    module, name = _PLACES[method].split(":")
    found: type[Scheduler] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    assert issubclass(found, Scheduler)
    return found


def make_scheduler(method: str, *, seed: int = 0, **options: Any) -> Scheduler:
    """The scheduler with its options; ``seed`` goes to those that draw random numbers."""
    cls = scheduler_class(method)
    if "seed" in inspect.signature(cls).parameters:
        options["seed"] = seed
    return cls(**options)


__all__ = [
    "METHODS",
    "Progress",
    "Report",
    "Scheduler",
    "Stop",
    "make_scheduler",
    "scheduler_class",
]
