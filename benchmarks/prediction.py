"""Predictions against runs: the formula and the simulator for plans of two models of the zoo.

    .venv/bin/python benchmarks/prediction.py [--models ctrdnn,two_emb] [--json FILE]

The cluster has the machine's own cores and two emulated types: ``slow``, and ``far``, which is
slower still and behind a link of 40 Mbit/s. The profile of each model is measured once, as
``heterps profile`` does; then every plan is run at staleness 2 and 0 and set beside what the
formula and the simulator say. At the end ``heterps plan`` chooses, and its choice is run too. The
plans of the last group use a core of the machine itself, which with the server makes the run
oversubscribed by the rule on two cores: they are shown and do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.job.spec import Job
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.planning.schedulers import make_scheduler
from heterps.planning.simulate import simulate
from heterps.runtime.profiling import measure_profile
from heterps.runtime.profiling.trial import run_trial
from heterps.testing.forking import ForkEngine
from ps import machine

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
RUN_S, LEAST_BATCHES = 8.0, 8
FORMULA, SIMULATOR = (0.10, 0.25), (0.10, 0.20)  # median and worst
ROOM = {"cpu": 0, "slow": 4, "far": 3}  # units that are not too many for two cores, with a server
FLOOR = 0.9  # of the median measured throughput

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


@dataclass(frozen=True)
class Outcome:
    """Samples per second; ``others`` is the load of the machine when the run began."""

    model: str
    plan: str
    staleness: int
    measured: float
    formula: float
    simulated: float
    bound_by: str
    oversubscribed: bool
    dollars_per_million: float
    load: float

    @property
    def formula_error(self) -> float:
        return self.formula / self.measured - 1

    @property
    def simulator_error(self) -> float:
        return self.simulated / self.measured - 1


def main() -> None:
    options = parsed()
    console = Console(width=140)
    result: dict[str, Any] = {"machine": machine(), "types": TYPES, "models": {}}
    outcomes: list[Outcome] = []
    for model in options.models:
        found = of_model(model, console, options.profiles)
        outcomes += found.pop("outcomes")
        result["models"][model] = found
    result["outcomes"] = [asdict(each) for each in outcomes]
    result["verdict"] = verdict(outcomes)
    show(console, outcomes, result["verdict"])
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    models = parser.add_argument("--models", default=",".join(PLANS), help="with commas")
    models.type = lambda text: text.split(",")
    parser.add_argument("--profiles", type=Path, help="a folder to keep profiles in, and to use")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def of_model(model: str, console: Console, profiles: Path | None) -> dict[str, Any]:
    job = Job.parse(document(model))
    profile = profile_of(job, model, console, profiles)
    problem = Problem.of(job.model_copy(update={"profile": profile.as_document()}))
    outcomes = []
    for stages in [*PLANS[model], *WITH_A_CORE[model]]:
        plan = as_plan(problem, stages)
        for staleness in (2, 0):
            outcomes.append(compared(model, job, problem, plan, staleness))
            tell(console, outcomes[-1])
    return {
        "profile": profile.as_document(),
        "choice": choice(model, job, problem, outcomes, console),
        "outcomes": outcomes,
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
        "servers": {"count": 1, "type": "cpu"},
    }


def profile_of(job: Job, model: str, console: Console, folder: Path | None) -> Profile:
    path = folder / f"{model}.json" if folder else None
    known = None
    if path is not None and path.exists():
        known = Profile.parse(json.loads(path.read_text()), "profile")
    found = measure_profile(
        job, lambda share, note: console.print(f"{share:4.0%} {note}"), ForkEngine, known=known
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found.as_document(), indent=1))
    return found


def as_plan(problem: Problem, stages: Stages) -> Plan:
    ends = [first for first, _, _ in stages[1:]] + [problem.layers]
    assignment = [
        name for (first, name, _), end in zip(stages, ends, strict=True) for _ in range(first, end)
    ]
    return make_plan(problem, "given", assignment, [units for _, _, units in stages])


def compared(model: str, job: Job, problem: Problem, plan: Plan, staleness: int) -> Outcome:
    workload = job.workload.model_copy(update={"staleness": staleness})
    formula = plan.throughput or 0.0
    simulated = simulate(problem, plan, staleness=staleness).samples_per_s or 0.0
    batches = max(LEAST_BATCHES, round(RUN_S * simulated / workload.batch_size))
    load = os.getloadavg()[0]
    own = job.model_copy(update={"workload": workload})
    trial = run_trial(own, plan.as_document(), batches, ForkEngine)
    bound = min(plan.stages, key=lambda stage: stage.throughput or float("inf"))
    return Outcome(
        model,
        name_of(plan),
        staleness,
        trial.samples_per_s,
        formula,
        simulated,
        bound.bound_by,
        trial.oversubscribed,
        dollars_per_million(problem, plan, trial.samples_per_s),
        round(load, 1),
    )


def name_of(plan: Plan) -> str:
    return " → ".join(f"{s.units} {s.type} ({s.first}–{s.last})" for s in plan.stages)


def dollars_per_million(problem: Problem, plan: Plan, samples_per_s: float) -> float:
    prices = {entry.name: entry.price_per_hour for entry in problem.cluster.types}
    hourly = sum(stage.units * prices[stage.type] for stage in plan.stages)
    return (hourly + problem.workload.overhead_per_hour) / 3600 / samples_per_s * 1e6


def choice(
    model: str, job: Job, problem: Problem, outcomes: Sequence[Outcome], console: Console
) -> dict[str, Any]:
    """The plan that ``heterps plan`` would take, measured, beside the cheapest of the others."""
    ran = [each for each in counted(outcomes) if each.staleness == 2]
    floor = FLOOR * statistics.median(each.measured for each in ran)
    free = problem.with_limits(ROOM).with_min_throughput(floor)
    plan = make_scheduler("exact").plan(free)
    chosen = compared(model, job, problem, plan, 2)
    tell(console, chosen)
    able = [each for each in ran if each.measured >= floor]
    best = min(able, key=lambda each: each.dollars_per_million)
    return {
        "floor": floor,
        "chosen": asdict(chosen),
        "best_other": asdict(best),
        "cost_ratio": chosen.dollars_per_million / best.dollars_per_million,
        "meets_floor": chosen.measured >= floor,
    }


def counted(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if not each.oversubscribed]


def verdict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    ran = counted(outcomes)
    formula = [abs(each.formula_error) for each in ran if each.staleness == 2]
    simulator = [abs(each.simulator_error) for each in ran]
    return {
        "plans": len(formula),
        "formula": {"median": statistics.median(formula), "worst": max(formula)},
        "simulator": {"median": statistics.median(simulator), "worst": max(simulator)},
        "formula_holds": statistics.median(formula) <= FORMULA[0] and max(formula) <= FORMULA[1],
        "simulator_holds": statistics.median(simulator) <= SIMULATOR[0]
        and max(simulator) <= SIMULATOR[1],
    }


def tell(console: Console, found: Outcome) -> None:
    console.print(
        f"{found.model:8} staleness {found.staleness}  measured {found.measured:8,.0f}  "
        f"formula {found.formula_error:+6.1%}  simulator {found.simulator_error:+6.1%}  "
        f"load {found.load:4}  {found.plan}",
        highlight=False,
    )


def show(console: Console, outcomes: Sequence[Outcome], found: dict[str, Any]) -> None:
    titles = ("model", "plan", "bound by", "staleness", "measured", "formula", "simulator")
    table = Table(*titles, title="samples/s; errors of predictions")
    for each in outcomes:
        note = " (no evidence)" if each.oversubscribed else ""
        table.add_row(
            each.model,
            each.plan + note,
            each.bound_by,
            str(each.staleness),
            f"{each.measured:,.0f}",
            f"{each.formula_error:+.0%}" if each.staleness else "",
            f"{each.simulator_error:+.0%}",
        )
    console.print(table)
    for name in ("formula", "simulator"):
        errors = found[name]
        console.print(f"{name}: median {errors['median']:.1%}, worst {errors['worst']:.1%}")


if __name__ == "__main__":
    main()
