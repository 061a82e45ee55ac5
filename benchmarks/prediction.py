"""Predictions against runs: the formula and the simulator for plans of two models of the zoo.

    .venv/bin/python benchmarks/prediction.py [--models ctrdnn,two_emb] [--json FILE]

The cluster has the machine's own cores and two emulated types: ``slow``, and ``far``, which is
slower still and behind a link of 40 Mbit/s. Every plan is run at staleness 2 and 0 and set beside
what the formula and the simulator say. Hosts that are shared change their pace by a fifth from one
minute to the next: so there are rounds, with a profile measured in each as ``heterps profile``
does, and one run of every plan, which is set beside what that profile says; the median of those
ratios counts. At the end
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

from rich.console import Console

from awake import awake
from heterps.job.spec import Job
from heterps.planning.measured import check_stages
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.planning.schedulers import make_scheduler
from heterps.planning.simulate import simulate
from heterps.planning.simulated import cheapest_simulated
from heterps.runtime.emulation import Demand
from heterps.runtime.measuring import Measurement, Measurer
from heterps.runtime.profiling import measure_profile
from heterps.testing.forking import ForkEngine
from prediction_plans import PLANS, ROOM, SERVERS, TYPES, WITH_A_CORE, as_plan, document
from prediction_tables import Outcome, counted, show, show_choice, tell, verdict
from ps import machine

FLOOR = 0.9  # of the median measured throughput


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
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(result, indent=1) + "\n")
    show(console, outcomes, result["verdict"])
    for model, found in result["models"].items():
        show_choice(console, model, found["choice"])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    models = parser.add_argument("--models", default=",".join(PLANS), help="with commas")
    models.type = lambda text: text.split(",")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run, once it is warm")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--after", type=Path, help="what --json has written of other models")
    plans = parser.add_argument("--plans", help="numbers with commas: these, and no choice")
    plans.type = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--stages", action="store_true", help="say what each stage took")
    return parser.parse_args()


def of_model(model: str, console: Console, options: argparse.Namespace) -> dict[str, Any]:
    job = Job.parse(document(model))
    plans = [*PLANS[model], *WITH_A_CORE[model]]
    profiles = []
    ran: dict[tuple[int, int], list[Ran]] = {}
    for number in range(options.rounds):
        console.print(f"{model}, round {number + 1}: profile", style="dim", highlight=False)
        profiles.append(measure_profile(job, make_engine=ForkEngine))
        problem = with_profile(job, profiles[-1])
        again = range(len(PLANS[model]) if number else len(plans))
        for at in options.plans or again:
            plan = as_plan(problem, plans[at])
            for staleness in (2, 0):
                found = run(job, problem, plan, staleness, options.seconds, console)
                ran.setdefault((at, staleness), []).append(found)
    problem = with_profile(job, mean_of(profiles))
    outcomes = [compared(model, problem, each) for each in ran.values()]
    for each in outcomes:
        tell(console, each, options.stages)
    chosen = {} if options.plans else choice(model, job, problem, outcomes, options, console)
    about = {"profiles": [profile.as_document() for profile in profiles]}
    return {**about, "choice": chosen, "outcomes": outcomes}


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


@dataclass(frozen=True)
class Ran:
    """A plan that was run, with the figures of the profile that was measured before it."""

    plan: Plan
    staleness: int
    found: Measurement
    formula: float
    simulated: float

    @property
    def measured(self) -> float:
        return self.found.samples_per_s


def run(
    job: Job, problem: Problem, plan: Plan, staleness: int, seconds: float, console: Console
) -> Ran:
    """In the steady state: the pipeline is full when it begins to count, and when it ends."""
    workload = job.workload.model_copy(update={"staleness": staleness})
    own = job.model_copy(update={"workload": workload})
    found = Measurer(own, seconds, ForkEngine).run(plan)
    assert found is not None
    expected = simulate(problem, plan, staleness=staleness).samples_per_s or 0.0
    reached = f"{found.samples_per_s:,.0f} samples/s, expected {expected:,.0f}"
    said = f"{name_of(plan)}, staleness {staleness}: {reached}"
    console.print(said, style="dim", highlight=False)
    return Ran(plan, staleness, found, plan.throughput or 0.0, expected)


def compared(model: str, problem: Problem, runs: Sequence[Ran]) -> Outcome:
    """Of all runs of a plan: the median, with predictions off by the median of their ratios."""
    middle = sorted(runs, key=lambda each: each.measured)[len(runs) // 2]
    measured = statistics.median(each.measured for each in runs)
    plan, found = middle.plan, middle.found
    bound = min(plan.stages, key=lambda stage: stage.throughput or float("inf"))
    return Outcome(
        model,
        name_of(plan),
        middle.staleness,
        measured,
        tuple(each.measured for each in runs),
        measured * statistics.median(each.formula / each.measured for each in runs),
        measured * statistics.median(each.simulated / each.measured for each in runs),
        bound.bound_by,
        oversubscribed(problem, plan),
        dollars_per_million(problem, plan, measured),
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
    options: argparse.Namespace,
    console: Console,
) -> dict[str, Any]:
    """By cost under a floor: the plan that predictions choose among those that ran, and the one
    that ``heterps plan --simulated`` chooses among all, beside the cheapest that was measured."""
    ran = [each for each in counted(outcomes) if each.staleness == 2]
    floor = FLOOR * statistics.median(each.measured for each in ran)
    able = [each for each in ran if each.measured >= floor]
    best = min(able, key=lambda each: each.dollars_per_million)
    said = [each for each in ran if each.simulated >= floor]
    among = min(said, key=lambda each: each.simulated_dollars_per_million)
    stale = problem.workload.model_copy(update={"staleness": 2})
    free = replace(problem, workload=stale).with_limits(ROOM).with_min_throughput(floor)
    plan = cheapest_simulated(free, make_scheduler("exact").plan(free)).plan
    again = [run(job, problem, plan, 2, options.seconds, console) for _ in range(options.rounds)]
    of_all = compared(model, problem, again)
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


if __name__ == "__main__":
    main()
