"""`heterps plan --measure` where the profile is wrong: does it end with a good plan?

    .venv/bin/python benchmarks/measured_policy.py [--rounds 8] [--seconds 4] [--json FILE]

Two emulated types. The profile is measured, as `heterps profile` does, and then distorted: its
heaviest layer seems to take a fifth of its time on one of them. Rounds of measuring start from
there. What they end with is set beside the best of other plans: the optimum of the undistorted
profile, each type alone, and cuts in two. All of them are run for the same time. The cores are kept
awake meanwhile (awake.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from awake import awake
from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.errors import InfeasibleError
from heterps.job.spec import Job
from heterps.planning.plan import Plan
from heterps.planning.policy.measured import TOLERANCE, Round
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.planning.provisioning import provision
from heterps.planning.schedulers import make_scheduler
from heterps.runtime.measuring import Measurer, measure_plans
from heterps.runtime.profiling import measure_profile
from heterps.testing.forking import ForkEngine
from ps import machine

ROOT = Path(__file__).parents[1]
TYPES = [
    {"name": "slow", "price_per_hour": 0.02, "limit": 4, "slowdown": 12.0},
    {"name": "quick", "price_per_hour": 0.035, "limit": 2, "slowdown": 8.0},
]
WRONG_TYPE, WRONG = "quick", 5.0
ROWS, IDS = 60_000, 5_000
WORK = {"batch_size": 1024, "micro_batches": 4, "staleness": 2, "epochs": 1}
Figures = dict[str, Any]


def main() -> None:
    options = parsed()
    console = Console()
    job = made_job(ROOT / "build/bench/measured", options.floor)
    with awake():
        true = profiled(job, ROOT / "build/bench/measured/profile.json", console)
        wrong, layer = distorted(true)
        console.print(f"{layer} seems {WRONG:g} times as quick on {WRONG_TYPE} as it is")
        rounds = measured_rounds(with_profile(job, wrong), options, console)
        best = min((r for r in rounds if r.kept), key=lambda r: r.cost, default=rounds[0])
        others = reference(with_profile(job, true), best, options, console)
    result = summary(rounds, best, others, layer)
    show(console, result)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--floor", type=float, default=0.0, help="samples per second")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def made_job(folder: Path, floor: float) -> Job:
    data = folder / "data"
    if not (data / SECTION).exists():
        synthesise(SynthSpec(ROWS, 1000, files=2, ids=IDS), data)
    section = yaml.safe_load((data / SECTION).read_text())["data"]
    del section["validation"]
    document = {
        "model": {"zoo": "ctrdnn", "args": {"hidden": [512, 64]}},
        "data": section | {"train": str(data / section["train"])},
        "workload": WORK | {"samples_per_epoch": ROWS, "min_throughput": floor},
        "cluster": {"types": TYPES},
        "servers": {"count": 1},
    }
    return Job.parse(document).in_folder(folder)


def profiled(job: Job, path: Path, console: Console) -> Profile:
    known = Profile.parse(json.loads(path.read_text()), "profile") if path.exists() else None
    console.print("profiling")
    found = measure_profile(job, make_engine=ForkEngine, known=known)
    path.write_text(json.dumps(found.as_document()))
    return found


def distorted(profile: Profile) -> tuple[Profile, str]:
    """The layer that computes longest, made to look quick."""
    document = profile.as_document()
    heaviest = max(document["layers"], key=lambda layer: layer["on"][WRONG_TYPE]["compute_s"])
    heaviest["on"][WRONG_TYPE]["compute_s"] /= WRONG
    return Profile.parse(document, "profile"), heaviest["name"]


def with_profile(job: Job, profile: Profile) -> Job:
    return job.model_copy(update={"profile": profile.as_document()})


def measured_rounds(job: Job, options: argparse.Namespace, console: Console) -> list[Round]:
    def told(number: int, plan: Plan, found: Round | str | None) -> None:
        if isinstance(found, Round):
            console.print(f"round {number + 1}: {outline(plan)}: {dollars(found.cost)}")
        elif found is not None:
            console.print(f"round {number + 1}: {found}", markup=False)

    problem = Problem.of(job)
    times = (options.rounds, options.seconds)
    return measure_plans(job, problem, *times, told=told, make_engine=ForkEngine).rounds


def reference(
    job: Job, best: Round, options: argparse.Namespace, console: Console
) -> list[Figures]:
    """Plans of the undistorted profile and what a run of each costs; the best of the rounds is run
    again first, and if it is one of them it stands for that one too. It and the cheapest of the
    others then run twice more, in turns, so that chance favours nobody: what counts is the
    median."""
    problem = Problem.of(job)
    measurer = Measurer(job, options.seconds, ForkEngine)
    runs: dict[int, list[float]] = {}
    plans = [replace(best.plan, method="again")]
    for plan in plans_of(problem):
        if plan.method == "optimum" and _what(plan) == _what(best.plan):
            plans[0] = replace(plans[0], method="again, the optimum")
        elif all(_what(plan) != _what(other) for other in plans):  # and not run beside itself
            plans.append(plan)

    def run(number: int) -> None:
        taken = measurer.run(plans[number])
        assert taken is not None
        runs.setdefault(number, []).append(taken.samples_per_s)

    def figures(number: int) -> Figures:
        plan, reached = plans[number], statistics.median(runs[number])
        kept = reached >= options.floor * (1 - TOLERANCE)
        cost = plan.cost * (plan.throughput or 0.0) / reached
        return row(plan, reached, cost) | {"kept": kept}

    for number in range(len(plans)):
        run(number)
        console.print(f"{plans[number].method}: {outline(plans[number])}")
    others = [n for n in range(1, len(plans)) if figures(n)["kept"]]
    for number in [0, *sorted(others, key=lambda n: figures(n)["cost"])[:3]] * 2:
        run(number)
    return [figures(number) for number in range(len(plans))]


def _what(plan: Plan) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return plan.assignment, plan.units


def plans_of(problem: Problem) -> Iterator[Plan]:
    optimum = make_scheduler("exact").plan(problem)
    yield optimum.named("optimum")
    assignments = [(name,) * problem.layers for name in problem.types]
    first, second = problem.types
    for cut in (1, 2, 3, problem.layers // 2):
        assignments.append((first,) * cut + (second,) * (problem.layers - cut))
        assignments.append((second,) * cut + (first,) * (problem.layers - cut))
    for assignment in assignments:
        try:
            yield provision(problem, assignment).named("other")
        except InfeasibleError:
            continue


def summary(rounds: list[Round], best: Round, others: list[Figures], layer: str) -> Figures:
    told = [
        row(r.plan, r.samples_per_s, r.cost) | {"expected": r.expected, "kept": r.kept}
        for r in rounds
    ]
    kept = [entry for entry in others if entry["kept"]] or others
    least = min(entry["cost"] for entry in kept)
    return {
        "machine": machine(),
        "distorted": {"layer": layer, "type": WRONG_TYPE, "times": WRONG},
        "rounds": told,
        "others": others,
        "first": told[0]["cost"],
        "best": best.cost,
        "again": others[0]["cost"],
        "ratio": others[0]["cost"] / least,
        "noise": abs(others[0]["cost"] / best.cost - 1),
    }


def row(plan: Plan, samples_per_s: float, cost: float) -> Figures:
    about = {"method": plan.method, "plan": outline(plan), "predicted": plan.cost}
    return {**about, "samples_per_s": samples_per_s, "cost": cost}


def outline(plan: Plan) -> str:
    return " | ".join(f"{s.units} {s.type} ({s.last - s.first + 1})" for s in plan.stages)


def dollars(cost: float) -> str:
    return f"${1e6 * cost:,.1f}e-6"


def show(console: Console, result: Figures) -> None:
    table = Table("", "units (layers)", "predicted", "measured", "samples/s", "floor")
    for number, entry in enumerate(result["rounds"], 1):
        table.add_row(f"round {number}", *cells(entry))
    table.add_section()
    for entry in result["others"]:
        table.add_row(entry["method"], *cells(entry))
    console.print(table)
    console.print(
        f"run again, the best of the rounds costs {result['ratio']:.3f} times the best of the "
        f"other plans (its two runs differ by {result['noise']:.0%}); the cost model's choice cost "
        f"{result['first'] / result['best']:.2f} times as much as the best of the rounds"
    )


def cells(entry: Figures) -> list[str]:
    money = [f"${1e6 * entry[key]:,.1f}e-6" for key in ("predicted", "cost")]
    floor = "" if entry["kept"] else "missed"
    return [entry["plan"], *money, f"{entry['samples_per_s']:,.0f}", floor]


if __name__ == "__main__":
    main()
