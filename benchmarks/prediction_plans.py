"""What benchmarks/prediction.py runs: its cluster, its jobs and their plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem

ROOT = Path(__file__).parents[1]
TYPES = [
    {"name": "cpu", "price_per_hour": 0.1, "limit": 2},
    {"name": "slow", "price_per_hour": 0.02, "limit": 24, "slowdown": 10.0},
    {
        "name": "far",
        "price_per_hour": 0.01,
        "limit": 24,
        "slowdown": 16.0,
        "link_mbps": 40.0,
        "link_ms": 1.0,
    },
]
MICRO_BATCH, MICRO_BATCHES = 256, 12
ROWS, IDS = 200_000, 20_000
SERVERS = 1
ROOM = {"cpu": 0, "slow": 4, "far": 3}  # units that are not too many for two cores, with a server

# Stages as (first layer, type, units).
Stages = Sequence[tuple[int, str, int]]
ARGS: dict[str, dict[str, Any]] = {
    "ctrdnn": {"hidden": [128, 128, 64]},
    "two_emb": {},
}
PLANS: dict[str, list[Stages]] = {
    "ctrdnn": [
        [(0, "slow", 1)],
        [(0, "slow", 4)],
        [(0, "slow", 6)],
        [(0, "far", 3)],
        [(0, "slow", 3), (5, "far", 2)],
        [(0, "far", 2), (2, "slow", 4)],
        [(0, "slow", 2), (2, "far", 4), (8, "slow", 1)],
    ],
    "two_emb": [
        [(0, "slow", 2)],
        [(0, "far", 6)],
        [(0, "slow", 3), (5, "far", 2)],
        [(0, "far", 3), (4, "slow", 2)],
        [(0, "slow", 2), (3, "far", 3), (7, "slow", 1)],
    ],
}
WITH_A_CORE: dict[str, list[Stages]] = {
    "ctrdnn": [[(0, "slow", 2), (2, "cpu", 1)]],
    "two_emb": [[(0, "cpu", 1), (4, "far", 3)]],
}


def document(model: str) -> dict[str, Any]:
    folder = ROOT / "build/bench/prediction-data"
    synthesise(SynthSpec(ROWS, 300, files=2, ids=IDS), folder)
    section = yaml.safe_load((folder / SECTION).read_text())["data"]
    section["train"] = str(folder / section["train"])
    del section["validation"]
    return {
        "model": {"zoo": model, "args": ARGS[model]},
        "data": section,
        "workload": {
            "batch_size": MICRO_BATCH * MICRO_BATCHES,
            "micro_batches": MICRO_BATCHES,
            "epochs": 1,
            "samples_per_epoch": ROWS,
        },
        "cluster": {"types": TYPES},
        "servers": {"count": SERVERS, "type": "cpu"},
    }


def as_plan(problem: Problem, stages: Stages) -> Plan:
    ends = [first for first, _, _ in stages[1:]] + [problem.layers]
    assignment = [
        name for (first, name, _), end in zip(stages, ends, strict=True) for _ in range(first, end)
    ]
    return make_plan(problem, "given", assignment, [units for _, _, units in stages])
