"""Random planning problems that look like real ones, reproducible from a seed.

The figures follow a rough roofline: published orders of magnitude for compute rate, memory and
link bandwidth of each kind of unit, each multiplied by noise, so that no two types or layers are
alike. Nothing here is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heterps.planning.feasibility import shortest_period
from heterps.planning.problem import Problem
from heterps.planning.schedulers.exact import ExactScheduler


@dataclass(frozen=True)
class _Unit:
    """What a unit of a resource type can do, per second."""

    flops: float
    memory_bytes: float
    link_bytes: float
    latency_s: float
    price_per_hour: float
    limit: int
    memory_gib: float | None
    parallel: tuple[float, float]
    parallel_comm: tuple[float, float]


_CPU = {"parallel": (0.998, 1.0), "parallel_comm": (0.92, 0.97)}
_ACCELERATOR = {"parallel": (0.97, 0.995), "parallel_comm": (0.5, 0.8)}
_UNITS: dict[str, _Unit] = {
    "cpu": _Unit(3.2e10, 1.2e9, 1.3e8, 0.0, 0.04, 480, None, **_CPU),
    "v100": _Unit(8e12, 3.5e11, 7e8, 6e-5, 2.42, 32, 32, **_ACCELERATOR),
    "xpu": _Unit(6e12, 2.2e11, 7e8, 8e-5, 1.30, 16, 16, **_ACCELERATOR),
    "t4": _Unit(4e12, 1.2e11, 5e8, 1e-4, 0.60, 48, 16, **_ACCELERATOR),
    "a100": _Unit(1.4e13, 7e11, 1.4e9, 5e-5, 4.10, 16, 40, **_ACCELERATOR),
    "epyc": _Unit(4e10, 1.6e9, 1.0e8, 0.0, 0.048, 640, None, **_CPU),
    "p4": _Unit(1.6e12, 6e10, 4e8, 1.6e-4, 0.42, 32, 8, **_ACCELERATOR),
    "hpu": _Unit(9e12, 3e11, 1.6e9, 8e-5, 1.64, 16, 32, **_ACCELERATOR),
}
_KINDS = ("fc", "relu", "norm", "attention", "embedding", "concat", "dropout")
_KIND_SHARE = (0.34, 0.24, 0.12, 0.08, 0.12, 0.05, 0.05)
_BATCH = 512


def random_problem(
    seed: int,
    *,
    layers: tuple[int, int] = (24, 64),
    types: tuple[int, int] = (2, 8),
    limited: bool | None = None,
    floor: tuple[float, float] = (0.1, 0.6),
) -> Problem:
    """A feasible problem. Its floor is a share of the largest reachable throughput. ``limited``
    cuts each type that the optimum without limits uses to 60 % of that use (by default every second
    seed); the floor is lowered where nothing else is feasible."""
    rng = np.random.default_rng([7, seed])
    spread = float(rng.uniform(0.15, 0.5))
    link = float(np.exp(rng.uniform(0, np.log(20))))
    limited = seed % 2 == 1 if limited is None else limited
    count = int(rng.integers(types[0], types[1] + 1))
    names = _choose_types(rng, count)
    units = {name: _noisy_unit(rng, _UNITS[name], spread, link) for name in names}
    document = {
        "cluster": {"types": [_type_entry(name, unit) for name, unit in units.items()]},
        "profile": {
            "model": f"random-{seed}",
            "batch_size": _BATCH,
            "layers": _layers(rng, int(rng.integers(layers[0], layers[1] + 1)), units, spread),
        },
        "workload": _workload(rng),
    }
    problem = _with_floor(document, float(rng.uniform(*floor)))
    return _with_limits(problem) if limited else problem


def random_problems(count: int, first_seed: int = 0, **options: Any) -> Iterator[Problem]:
    """``count`` problems with consecutive seeds."""
    for seed in range(first_seed, first_seed + count):
        yield random_problem(seed, **options)


def _choose_types(rng: np.random.Generator, count: int) -> list[str]:
    host = str(rng.choice(["cpu", "epyc"]))
    rest = [name for name in _UNITS if name != host]
    chosen = {host, *rng.choice(rest, size=count - 1, replace=False).tolist()}
    return [name for name in _UNITS if name in chosen]


def _noisy_unit(rng: np.random.Generator, unit: _Unit, spread: float, link: float) -> _Unit:
    noise = np.exp(rng.normal(0, spread, 4))
    return _Unit(
        unit.flops * noise[0],
        unit.memory_bytes * noise[1],
        unit.link_bytes * noise[2] * link,
        unit.latency_s,
        round(unit.price_per_hour * noise[3], 4),
        unit.limit,
        unit.memory_gib,
        unit.parallel,
        unit.parallel_comm,
    )


def _type_entry(name: str, unit: _Unit) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "price_per_hour": unit.price_per_hour,
        "limit": unit.limit,
    }
    if unit.memory_gib is not None:
        entry["memory_gib"] = unit.memory_gib
    return entry


def _workload(rng: np.random.Generator) -> dict[str, Any]:
    workload: dict[str, Any] = {
        "batch_size": int(rng.choice([512, 1024, 4096, 16384])),
        "samples_per_epoch": int(rng.integers(1_000_000, 100_000_000)),
        "epochs": 1,
        "min_throughput": 0,
    }
    if rng.random() < 0.3:
        workload["overhead_per_hour"] = round(float(rng.uniform(0.1, 4)), 2)
    return workload


def _layers(
    rng: np.random.Generator, count: int, units: dict[str, _Unit], spread: float
) -> list[dict[str, Any]]:
    kinds = ["embedding", *rng.choice(_KINDS, size=count - 1, p=_KIND_SHARE).tolist()]
    width = int(rng.choice([256, 512, 1024, 2048]))
    sync = rng.random() < 0.4
    layers = []
    for index, kind in enumerate(kinds):
        out = int(rng.choice([128, 256, 512, 1024])) if kind in ("fc", "concat") else width
        layers.append(_layer(rng, index, kind, width, out, units, spread, sync))
        width = out
    return layers


def _layer(
    rng: np.random.Generator,
    index: int,
    kind: str,
    width: int,
    out: int,
    units: dict[str, _Unit],
    spread: float,
    sync: bool,
) -> dict[str, Any]:
    ids = int(rng.integers(10, 200)) if kind == "embedding" else 0
    weight = {
        "fc": 4 * (width * out + out),
        "attention": 16 * width * width,
        "norm": 8 * width,
        "embedding": int(rng.choice([16, 64, 256])) * 10**9,
    }.get(kind, 0)
    flops = {"fc": 6.0 * width * out, "attention": 24.0 * width * width}.get(kind, 0.0)
    moved = 12.0 * width + 400.0 * ids
    pulled = 64.0 * ids + 8.0 * ids
    on = {}
    for name, unit in units.items():
        noise = np.exp(rng.normal(0, spread, 3))
        dense = 0 if kind == "embedding" else weight
        entry = {
            "compute_s": _BATCH * (flops / unit.flops + moved / unit.memory_bytes) * noise[0]
            + unit.latency_s,
            "comm_s": (_BATCH * pulled + dense) / unit.link_bytes * noise[1] / 4,
            "alpha": rng.uniform(*unit.parallel),
            "beta": rng.uniform(0.92, 1.0)
            if kind == "embedding"
            else rng.uniform(*unit.parallel_comm),
            "transfer_s": _BATCH * (4.0 * width + 8.0 * ids) / unit.link_bytes * noise[2],
        }
        if sync and dense:
            entry["sync_s"] = unit.latency_s + 2e-5 + dense / (40 * unit.link_bytes)
        on[name] = {key: float(value) for key, value in entry.items()}
    return {
        "name": f"{kind}{index}",
        "kind": kind,
        "input_bytes": 4 * width + 8 * ids,
        "weight_bytes": weight,
        "on": on,
    }


def _with_floor(document: dict[str, Any], share: float) -> Problem:
    problem = Problem.parse(document)
    reachable = problem.workload.batch_size / shortest_period(problem, 1e-3, 500)
    return problem.with_min_throughput(round(share * reachable, 3))


def _with_limits(problem: Problem) -> Problem:
    plenty = problem.with_limits(dict.fromkeys(problem.types, 100_000))
    used = ExactScheduler().plan(plenty).units_by_type()
    limits = {name: max(1, int(0.6 * units)) for name, units in used.items()}
    tight = problem.with_limits(limits)
    period = shortest_period(tight, 1e-3, 500)
    floor = min(tight.workload.min_throughput, 0.95 * tight.workload.batch_size / period)
    return tight.with_min_throughput(round(floor, 3))
