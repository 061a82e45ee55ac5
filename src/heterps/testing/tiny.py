"""Problems small enough for the reference, made to hit the edges of the definition.

Every figure is one of a short list that holds its edge values, so that ties, zeros and limits that
just bind come up all the time. The source of choice is an argument: a seeded generator here,
hypothesis in ``heterps.testing.strategies``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from heterps.planning import reference
from heterps.planning.problem import Problem

T = TypeVar("T")

_SECONDS = (0.001, 0.0, 0.002, 0.0035, 0.01, 0.0213, 0.08, 0.5)
_SHARES = (0.9, 0.0, 1.0, 0.5, 0.97)
_PRICES = (1.0, 0.0, 0.04, 2.42, 0.6)
_LIMITS = (2, 1, 3, 5, 8, 12, 0)
_HALF_GIB = 2**29


class Choose(Protocol):
    def __call__(self, options: Sequence[T], /) -> T: ...


def tiny_problem(seed: int, *, layers: int = 4, types: int = 3) -> Problem:
    """At most so many layers and types; feasible or not."""
    rng = np.random.default_rng([11, seed])

    def choose(options: Sequence[T]) -> T:
        return options[int(rng.integers(len(options)))]

    return draw_problem(choose, layers=layers, types=types)


def draw_problem(choose: Choose, *, layers: int = 4, types: int = 3) -> Problem:
    """The first option of each list is the plainest, so that hypothesis shrinks towards it."""
    names = ["cpu", "gpu", "xpu", "npu"][: choose(range(1, types + 1))]
    batch = choose((100, 1, 64))
    document: dict[str, dict[str, Any]] = {
        "cluster": {"types": [_type(choose, name) for name in names]},
        "profile": {
            "model": "tiny",
            "batch_size": batch,
            "layers": [_layer(choose, i, names) for i in range(choose(range(1, layers + 1)))],
        },
        "workload": {
            "batch_size": choose((batch, 1, 200)),
            "samples_per_epoch": choose((36_000, 0, 1)),
            "epochs": choose((1, 0.5, 3)),
        },
    }
    if choose((False, True)):
        document["workload"]["overhead_per_hour"] = choose((0.5, 0, 20.0))
    return _with_floor(choose, Problem.parse(document))


def _type(choose: Choose, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "price_per_hour": choose(_PRICES),
        "limit": choose(_LIMITS),
    }
    memory = choose((None, None, None, 1, 2, 0.5, 0))
    if memory is not None:
        entry["memory_gib"] = memory
    return entry


def _layer(choose: Choose, index: int, names: Sequence[str]) -> dict[str, Any]:
    on, send = {}, {}
    for name in names:
        where = choose(("on",) * 9 + ("nowhere", "send", "both"))
        if where in ("on", "both"):
            on[name] = _figures(choose)
        if where in ("send", "both"):
            send[name] = {"transfer_s": choose(_SECONDS), "beta": choose(_SHARES)}
    layer = {
        "name": f"layer{index}",
        "kind": choose(("fc", "embedding")),
        "input_bytes": 4,
        "weight_bytes": choose((0, _HALF_GIB, 2 * _HALF_GIB, 2 * _HALF_GIB + 1)),
        "on": on,
    }
    return layer | {"send": send} if send else layer


def _figures(choose: Choose) -> dict[str, float]:
    figures = {
        "compute_s": choose(_SECONDS),
        "comm_s": choose(_SECONDS),
        "alpha": choose(_SHARES),
        "beta": choose(_SHARES),
        "transfer_s": choose(_SECONDS),
    }
    if choose((False, True)):
        figures["sync_s"] = choose(_SECONDS)
    return figures


def _with_floor(choose: Choose, problem: Problem) -> Problem:
    """No floor, an absolute one, or a share of what the first plan of the reference reaches: just
    that, a little less, a little more.
    """
    share = choose((0.0, 0.5, 1.0, 0.97, 1.03, None))
    if share is None:
        return problem.with_min_throughput(choose((1e4, 1.0, 1e9)))
    period = reference.cheapest_plan(problem).period_s if share else 0.0
    if not 0 < period < float("inf"):
        return problem
    return problem.with_min_throughput(share * problem.workload.batch_size / period)
