"""``heterps plan JOB --measure N``: plans that are run before one is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from heterps import api
from heterps.cli.describe import brief_outline, outline, print_lines, print_plan, print_title
from heterps.cli.plan import finite, print_json, write_text
from heterps.cli.profile import ensure_profile
from heterps.cli.progress import Interrupt
from heterps.cli.tables import duration, money, percent, print_heading, rate
from heterps.cli.terminal_bar import TerminalBar
from heterps.errors import InputError
from heterps.job.load import load_job
from heterps.job.spec import Job
from heterps.planning.plan import Plan
from heterps.planning.policy.measured import MeasuredSearch, Round
from heterps.planning.problem import Problem
from heterps.runtime.measuring import measure_plans


def plan_by_measuring(
    file: Path,
    rounds: int,
    seconds: float,
    seed: int | None,
    changes: list[str],
    *,
    as_json: bool,
    out: Path | None,
) -> None:
    """Ctrl-C ends it with the best so far, but while there is no profile. Raises HeterPSError."""
    ensure_profile(file, changes)
    job = load_job(file, changes)
    if seed is not None:
        job = job.model_copy(update={"seed": seed})
    try:
        problem = Problem.of(api.counted(job))
        if not as_json:
            print_title(file, problem)
        interrupt = Interrupt()
        with interrupt.watching():
            search = _search(job, problem, rounds, seconds, interrupt, quiet=as_json)
    except InputError as error:
        if type(error) is not InputError:
            raise
        raise InputError(f"{file}: {error.path}", error.problem) from error
    best = search.best
    plan = best.plan if best else search.first
    if out is not None:
        text = json.dumps(finite(plan.as_document()), indent=2, allow_nan=False)
        write_text(out, f"{text}\n")
    if as_json:
        print_json({"problem": str(file), **plan.as_document(), **_document(search)})
    else:
        _print(problem, plan, search)


def _search(
    job: Job, problem: Problem, rounds: int, seconds: float, interrupt: Interrupt, *, quiet: bool
) -> MeasuredSearch:
    with _RoundsBar(rounds, seconds) as bar:
        bar.begin("tuning the policy on the cost model")

        def told(number: int, plan: Plan, found: Round | str | None) -> None:
            if found is None:
                bar.begin(f"running {brief_outline(plan)}", number)
            elif not quiet:
                bar.say(_line(number, rounds, problem, plan, found))

        def stop() -> bool:
            bar.tick()
            return interrupt.stop()

        return measure_plans(job, problem, rounds, seconds, told=told, stop=stop)


class _RoundsBar(TerminalBar):
    """How many of the rounds are done, and what is under way."""

    def __init__(self, rounds: int, seconds: float) -> None:
        super().__init__(f"measuring, {duration(seconds)} each")
        self._rounds = rounds
        self._done, self._note = 0, ""

    def begin(self, note: str, done: int = 0) -> None:
        self._done, self._note = done, note
        self.tick()

    def tick(self) -> None:
        if self.due:
            self.show(self._done, self._rounds, self._note)

    def say(self, line: str) -> None:
        echo: Callable[[str], Any] = typer.echo
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        echo(line)


def _line(number: int, rounds: int, problem: Problem, plan: Plan, found: Round | str) -> str:
    head = f"round {number + 1}/{rounds}  {outline(problem, plan)}"
    if isinstance(found, str):
        return f"{head}\n           failed: {found}"
    if len(found.runs) > 1:
        own = plan.cost * (plan.throughput or 0.0) / found.runs[-1]
        runs = f"{money(found.cost)} as the median of {len(found.runs)} runs"
        return f"{head}\n           again: {money(own)} at {rate(found.runs[-1])} samples/s, {runs}"
    measured = f"measured {money(found.cost)} at {rate(found.samples_per_s)} samples/s"
    said = f"predicted {money(plan.cost)}, expected {money(found.expected)}"
    return f"{head}\n           {said}, {measured}{'' if found.kept else ', below the floor'}"


def _print(problem: Problem, plan: Plan, search: MeasuredSearch) -> None:
    print()
    print_heading("The best of the plans that were run" if search.rounds else "No plan was run")
    print()
    print_plan(problem, replace(plan, planning_s=None))
    best, first = search.best, search.rounds[0] if search.rounds else None
    if best is None or first is None:
        print_lines([("measured", "nothing: this is the cost model's choice")])
        return
    floor = "" if best.kept else "; no plan that was run keeps the floor, this is the fastest"
    lines = [("measured", f"{rate(best.samples_per_s)} samples/s, {money(best.cost)}{floor}")]
    if best is first:
        lines.append(("verdict", f"the cost model's choice stands after {_rounds(search)}"))
    else:
        saved = 1 - best.cost / first.cost
        than = f"than the cost model's choice, which cost {money(first.cost)}"
        said = f"{percent(saved)} less {than}" if saved > 0 else f"{percent(-saved)} more {than}"
        said += "" if first.kept else " and missed the floor"
        lines.append(("verdict", f"{said}; {_rounds(search)}"))
    print_lines(lines)


def _rounds(search: MeasuredSearch) -> str:
    count = len(search.rounds)
    return f"{count} round{'' if count == 1 else 's'}"


def _document(search: MeasuredSearch) -> dict[str, Any]:
    best = search.best
    return {
        "measured": best and _round(best),
        "rounds": [{**_round(entry), "plan": entry.plan.as_document()} for entry in search.rounds],
    }


def _round(entry: Round) -> dict[str, Any]:
    return {
        "predicted_cost": entry.plan.cost,
        "expected_cost": entry.expected,
        "cost": entry.cost,
        "samples_per_s": entry.samples_per_s,
        "runs": list(entry.runs),
        "floor_kept": entry.kept,
    }
