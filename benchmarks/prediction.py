"""Predictions against runs: the formula and the simulator for plans of two models of the zoo.

    .venv/bin/python benchmarks/prediction.py [--models ctrdnn,two_emb] [--json FILE]

The cluster has the machine's own cores and two emulated types: ``slow``, and ``far``, which is
slower still and behind a link of 40 Mbit/s. Every plan is run at staleness 2 and 0 and set beside
what the formula and the simulator say. Hosts that are shared change their pace by a fifth from one
minute to the next: so there are rounds, with a profile measured in each as ``heterps profile``
does, and one run of every plan; the profiles' mean and the runs' median count. At the end
``heterps plan`` chooses, and its choice is run too. The plans of the last group use a core of the
machine itself, which with the server makes the run oversubscribed by the rule on two cores: they
are shown and do not count. The cores are kept awake meanwhile (awake.py). It takes about ten
minutes a model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from awake import awake
from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.job.spec import Job
from heterps.planning.measured import check_stages
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.planning.schedulers import make_scheduler
from heterps.planning.simulate import simulate
from heterps.runtime.emulation import Demand
from heterps.runtime.measuring import Measurement, Measurer
from heterps.runtime.profiling import measure_profile
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
SERVERS = 1
RUN_S = 5.0  # once it is warm
FORMULA, SIMULATOR = (0.10, 0.25), (0.10, 0.20)  # median and worst
ROOM = {"cpu": 0, "slow": 4, "far": 3}  # units that are not too many for two cores, with a server
COMPARED = ("compute_s", "comm_s")  # predicted and measured
PARTS = ("batch_s", "forward_s", "backward_s", "prepare_s", "send_s", "commit_s", "loop_s")
PARTS += ("pull_s", "push_s", "link_s")
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
    """Samples per second; ``calm`` is the share of their time that the stages would have worked for
    had nobody else used the machine."""

    model: str
    plan: str
    staleness: int
    measured: float
    runs: tuple[float, ...]
    formula: float
    simulated: float
    bound_by: str
    oversubscribed: bool
    dollars_per_million: float
    calm: float
    stages: list[dict[str, Any]]

    @property
    def predicted_dollars_per_million(self) -> float:
        return self.dollars_per_million * self.measured / self.formula

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
    if options.after:
        before = json.loads(options.after.read_text())
        outcomes = [Outcome(**each) for each in before["outcomes"]]
        result["models"] = before["models"]
    with awake():
        for model in options.models:
            found = of_model(model, console, options)
            outcomes += found.pop("outcomes")
            result["models"][model] = found
    result["outcomes"] = [asdict(each) for each in outcomes]
    result["verdict"] = verdict(outcomes)
    show(console, outcomes, result["verdict"])
    for model, found in result["models"].items():
        show_choice(console, model, found["choice"])
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    models = parser.add_argument("--models", default=",".join(PLANS), help="with commas")
    models.type = lambda text: text.split(",")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--after", type=Path, help="what --json has written of other models")
    plans = parser.add_argument("--plans", help="numbers with commas: these, and no choice")
    plans.type = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--stages", action="store_true", help="say what each stage took")
    return parser.parse_args()


def of_model(model: str, console: Console, options: argparse.Namespace) -> dict[str, Any]:
    job = Job.parse(document(model))
    plans = [*PLANS[model], *WITH_A_CORE[model]]
    profiles, ran = [], {}
    for number in range(options.rounds):
        console.print(f"{model}, round {number + 1}: profile", style="dim", highlight=False)
        profiles.append(measure_profile(job, make_engine=ForkEngine))
        problem = with_profile(job, mean_of(profiles))
        again = range(len(PLANS[model]) if number else len(plans))
        for at in options.plans or again:
            plan = as_plan(problem, plans[at])
            for staleness in (2, 0):
                found = run(job, problem, plan, staleness, console)
                ran.setdefault((at, staleness), []).append(found)
    outcomes = [compared(model, problem, median_of(each)) for each in ran.values()]
    for each in outcomes:
        tell(console, each, options.stages)
    chosen = {} if options.plans else choice(model, job, problem, outcomes, options.rounds, console)
    about = {"profiles": [profile.as_document() for profile in profiles]}
    return {**about, "choice": chosen, "outcomes": outcomes}


def median_of(runs: Sequence[Ran]) -> Ran:
    """The one in the middle, with the median of all throughputs."""
    reached = tuple(each.found.samples_per_s for each in runs)
    middle = sorted(runs, key=lambda each: each.found.samples_per_s)[len(runs) // 2]
    found = replace(middle.found, samples_per_s=statistics.median(reached))
    return replace(middle, found=found, runs=reached)


def with_profile(job: Job, profile: Profile) -> Problem:
    return Problem.of(job.model_copy(update={"profile": profile.as_document()}))


def mean_of(profiles: Sequence[Profile]) -> Profile:
    """Figure by figure."""
    document = profiles[0].as_document()
    for at, layer in enumerate(document["layers"]):
        for name, figures in layer["on"].items():
            each = [profile.layers[at].on[name].as_document() for profile in profiles]
            layer["on"][name] = {key: statistics.mean(one[key] for one in each) for key in figures}
    return Profile.parse(document, "profile")


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


@dataclass(frozen=True)
class Ran:
    """A plan that was run."""

    assignment: tuple[str, ...]
    units: tuple[int, ...]
    staleness: int
    found: Measurement
    runs: tuple[float, ...] = ()  # samples per second of all its runs


def run(job: Job, problem: Problem, plan: Plan, staleness: int, console: Console) -> Ran:
    """In the steady state: the pipeline is full when it begins to count, and when it ends."""
    workload = job.workload.model_copy(update={"staleness": staleness})
    own = job.model_copy(update={"workload": workload})
    found = Measurer(own, RUN_S, ForkEngine).run(plan)
    assert found is not None
    expected = simulate(problem, plan, staleness=staleness).samples_per_s or 0.0
    reached = f"{found.samples_per_s:,.0f} samples/s, expected {expected:,.0f}"
    said = f"{name_of(plan)}, staleness {staleness}: {reached}"
    console.print(said, style="dim", highlight=False)
    return Ran(plan.assignment, plan.units, staleness, found)


def compared(model: str, problem: Problem, ran: Ran) -> Outcome:
    plan = make_plan(problem, "given", ran.assignment, ran.units)
    bound = min(plan.stages, key=lambda stage: stage.throughput or float("inf"))
    found = ran.found
    return Outcome(
        model,
        name_of(plan),
        ran.staleness,
        found.samples_per_s,
        ran.runs,
        plan.throughput or 0.0,
        simulate(problem, plan, staleness=ran.staleness).samples_per_s or 0.0,
        bound.bound_by,
        oversubscribed(problem, plan),
        dollars_per_million(problem, plan, found.samples_per_s),
        min(stage.calm for stage in found.stages if stage is not None),
        parts(plan, found, problem.workload.batch_size),
    )


def oversubscribed(problem: Problem, plan: Plan) -> bool:
    types = {entry.name: entry for entry in problem.cluster.types}
    units = [(types[stage.type], stage.units) for stage in plan.stages]
    return Demand.of(units, SERVERS, len(os.sched_getaffinity(0))).oversubscribed


def parts(plan: Plan, found: Measurement, batch_size: int) -> list[dict[str, Any]]:
    """Of each stage, what was predicted and what was measured."""
    places = [(stage.type, stage.units) for stage in plan.stages]
    checks = check_stages(places, plan.stages, found.stages, batch_size)
    return [check.as_document() for check in checks]


def name_of(plan: Plan) -> str:
    return " → ".join(f"{s.units} {s.type} ({s.first}–{s.last})" for s in plan.stages)


def dollars_per_million(problem: Problem, plan: Plan, samples_per_s: float) -> float:
    prices = {entry.name: entry.price_per_hour for entry in problem.cluster.types}
    hourly = sum(stage.units * prices[stage.type] for stage in plan.stages)
    return (hourly + problem.workload.overhead_per_hour) / 3600 / samples_per_s * 1e6


def choice(
    model: str,
    job: Job,
    problem: Problem,
    outcomes: Sequence[Outcome],
    rounds: int,
    console: Console,
) -> dict[str, Any]:
    """By cost under a floor: the plan that predictions choose among those that ran, and the one
    that ``heterps plan`` chooses among all, each beside the cheapest that was measured."""
    ran = [each for each in counted(outcomes) if each.staleness == 2]
    floor = FLOOR * statistics.median(each.measured for each in ran)
    able = [each for each in ran if each.measured >= floor]
    best = min(able, key=lambda each: each.dollars_per_million)
    said = [each for each in ran if each.formula >= floor]
    among = min(said, key=lambda each: each.predicted_dollars_per_million)
    free = problem.with_limits(ROOM).with_min_throughput(floor)
    plan = make_scheduler("exact").plan(free)
    ran_now = [run(job, problem, plan, 2, console) for _ in range(rounds)]
    of_all = compared(model, problem, median_of(ran_now))
    tell(console, of_all)
    return {
        "floor": floor,
        "best": asdict(best),
        "among": chosen(among, best, floor),
        "of_all": chosen(of_all, best, floor),
    }


def chosen(outcome: Outcome, best: Outcome, floor: float) -> dict[str, Any]:
    return {
        **asdict(outcome),
        "cost_ratio": outcome.dollars_per_million / best.dollars_per_million,
        "of_floor": outcome.measured / floor,
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


def tell(console: Console, found: Outcome, stages: bool = False) -> None:
    console.print(
        f"{found.model:8} staleness {found.staleness}  measured {found.measured:8,.0f}  "
        f"formula {found.formula_error:+6.1%}  simulator {found.simulator_error:+6.1%}  "
        f"calm {found.calm:4.0%}  {found.plan}",
        highlight=False,
    )
    for stage in found.stages if stages else ():
        said, seen = stage["predicted"], stage["measured"]
        pairs = [f"{key[:-2]} {1e3 * said[key]:.0f} {1e3 * seen[key]:.0f}" for key in COMPARED]
        waits = [f"{cause} {1e3 * s:.0f}" for cause, s in seen["waiting"].items() if s > 0]
        own = [f"{key[:-2]} {1e3 * seen[key]:.1f}" for key in PARTS]
        console.print(f"    {stage['type']}: ms " + ", ".join(pairs + waits + own), highlight=False)


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


def show_choice(console: Console, model: str, found: dict[str, Any]) -> None:
    for name, title in (("among", "of these plans"), ("of_all", "of all plans")):
        own = found.get(name)
        if own is not None:
            figures = f"{own['cost_ratio']:.3f} x the cheapest measured, {own['of_floor']:.2f} x"
            console.print(f"{model}, chosen {title}: {own['plan']}: {figures} the floor")


if __name__ == "__main__":
    main()
