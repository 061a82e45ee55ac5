"""Problems small enough for the reference, made to hit the edges of the definition.

Every figure is one of a short list that holds its edge values, so that ties, zeros and limits that
just bind come up all the time. The source of choice is an argument: a seeded generator here,
hypothesis in ``heterps.testing.strategies``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Protocol, TypeVar

import numpy as np

from heterps.planning import reference
from heterps.planning.problem import Problem

T = TypeVar("T")

_SECONDS = (0.001, 0.0, 0.002, 0.0035, 0.01, 0.0213, 0.08, 0.5)
_SHARES = (0.9, 0.0, 1.0, 0.5, 0.97)
_PRICES = (1.0, 0.04, 2.42, 0.6, 0.04, 1.0, 0.0)
_LIMITS = (2, 1, 3, 5, 8, 12, 0)
_HALF_GIB = 2**29

_CPU = {"alpha": 0.99, "beta": 0.95, "transfer_s": 0.004}
_GPU = {"alpha": 0.9, "beta": 0.6, "transfer_s": 0.002}
_BASE: dict[str, Any] = {
    "cluster": {
        "types": [
            {"name": "cpu", "price_per_hour": 0.04, "limit": 12},
            {"name": "gpu", "price_per_hour": 0.5, "limit": 3, "memory_gib": 1},
        ]
    },
    "profile": {
        "model": "edge",
        "batch_size": 100,
        "layers": [
            {
                "name": name,
                "kind": kind,
                "input_bytes": 208,
                "weight_bytes": weight,
                "on": {
                    "cpu": _CPU | {"compute_s": slow, "comm_s": comm / 3},
                    "gpu": _GPU | {"compute_s": fast, "comm_s": comm},
                },
            }
            for name, kind, weight, slow, fast, comm in (
                ("embedding", "embedding", 64 * 10**9, 0.01, 0.002, 0.06),
                ("dense", "fc", _HALF_GIB, 0.5, 0.01, 0.003),
                ("head", "fc", _HALF_GIB, 0.08, 0.004, 0.003),
            )
        ],
    },
    "workload": {"batch_size": 200, "samples_per_epoch": 36_000_000, "epochs": 1},
}


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
            "samples_per_epoch": choose((36_000, 36_000, 36_000, 36_000, 1, 0)),
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


def plain_problem() -> Problem:
    """Three layers, two types, no floor: every assignment is feasible."""
    return Problem.parse(_BASE)


def infeasible_problems() -> dict[str, Problem]:
    """One for each reason, by reason."""
    return {
        "layer": _changed({"profile.layers.1.on": {}}),
        "memory": _changed(
            {"profile.layers.1.weight_bytes": 2**31, "cluster.types.0.memory_gib": 1}
        ),
        "limit": _changed({"cluster.types.0.limit": 0, "cluster.types.1.limit": 0}),
        "throughput": _changed({"workload.min_throughput": 1e7}),
    }


def edge_problems() -> dict[str, Problem]:
    """Each at another edge of the definition, and feasible."""
    layers = _BASE["profile"]["layers"]
    every = {f"profile.layers.{i}.on.{t}": (i, t) for i in range(3) for t in ("cpu", "gpu")}
    figures = {path: layers[i]["on"][t] for path, (i, t) in every.items()}

    def all_with(**values: float) -> Problem:
        return _changed({path: entry | values for path, entry in figures.items()})

    cpu_only = [layer | {"on": {"cpu": layer["on"]["cpu"]}} for layer in layers]
    return {
        "one layer": _changed({"profile.layers": layers[:1]}),
        "one type": _changed(
            {"cluster.types": _BASE["cluster"]["types"][:1], "profile.layers": cpu_only}
        ),
        "all serial": all_with(alpha=0, beta=0),
        "all parallel": all_with(alpha=1, beta=1),
        "no time at all": all_with(compute_s=0, comm_s=0, transfer_s=0),
        "no computing": all_with(compute_s=0),
        "no price": _changed({f"cluster.types.{i}.price_per_hour": 0 for i in (0, 1)}),
        "no samples": _changed({"workload.samples_per_epoch": 0}),
        "per-batch communication": all_with(sync_s=0.05),
        "costly overhead": _changed({"workload.overhead_per_hour": 50}),
        "a floor": _changed({"workload.min_throughput": 5000}),
        "single units": _changed({f"cluster.types.{i}.limit": 1 for i in (0, 1)}),
        "a type without units": _changed({"cluster.types.1.limit": 0}),
        "no memory for dense layers": _changed({"cluster.types.1.memory_gib": 0}),
        "a layer that one type cannot run": _changed({"profile.layers.1.on": cpu_only[1]["on"]}),
        "the same with a cost of sending": _changed(
            {
                "profile.layers.1.on": cpu_only[1]["on"],
                "profile.layers.1.send": {"gpu": {"transfer_s": 0.05, "beta": 0.5}},
            }
        ),
        "a forced change of type": _changed(
            {
                "profile.layers.0.on": {"gpu": layers[0]["on"]["gpu"]},
                "profile.layers.1.on": cpu_only[1]["on"],
            }
        ),
    }


def _changed(changes: dict[str, Any]) -> Problem:
    """The plain problem with the values at some paths replaced."""
    document = deepcopy(_BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = document
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        at[last] = deepcopy(value)
    return Problem.parse(document)
