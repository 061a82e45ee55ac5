"""``heterps simulate``: a plan at work, without machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterps.cli.options import Changes, JobFile, PlanFile
from heterps.cli.plan import print_json

if TYPE_CHECKING:
    from heterps.planning.plan import Plan
    from heterps.planning.problem import Problem
    from heterps.planning.simulation import Simulation

_EXAMPLES = """\b
Examples:
  heterps simulate job.yaml                     the job's plan, or the cheapest
  heterps simulate job.yaml --plan plan.json    a plan that `heterps plan --out` wrote
  heterps simulate job.yaml --staleness 2 --set workload.micro_batches=16
  heterps simulate job.yaml --jitter 0.2 --slow 0:3:2   replica 3 of stage 0 at half speed
\b
The figures come from the job's profile: nothing is measured here.
"""
_TITLES = (
    "#", "layers", "type", "units", "compute", "link", "busiest",
    "input", "rows", "credit", "staleness", "commit",
)  # fmt: skip


def simulate_command(app: typer.Typer) -> None:
    app.command("simulate", epilog=_EXAMPLES)(simulate)


def simulate(
    job: JobFile,
    plan: PlanFile = None,
    changes: Changes = None,
    staleness: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Batches ahead.", show_default="the job's"),
    ] = None,
    jitter: Annotated[
        float, typer.Option(min=0, metavar="SIGMA", help="Lognormal spread of every time.")
    ] = 0.0,
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE:REPLICA:F", help="A replica slower by F; repeatable."),
    ] = None,
    server_s: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Of all servers, for a micro-batch's rows one way."
        ),
    ] = 0.0,
    overlap: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="SHARE", help="Of communication that runs beside compute."
        ),
    ] = 1.0,
    batches: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many.", show_default="to settle")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of jitter.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Simulate a plan's pipeline: fill, drain, credits, stragglers."""
    from heterps.planning.conditions import Conditions
    from heterps.planning.simulate import simulate as run

    stragglers = dict(_straggler(text) for text in slow or [])
    problem, chosen = _problem_and_plan(job, plan, changes or [])
    conditions = Conditions(jitter, stragglers, server_s, overlap, seed)
    found = run(problem, chosen, conditions, staleness=staleness, batches=batches)
    if as_json:
        print_json({"job": str(job), "plan": chosen.as_document(), **found.as_document()})
    else:
        _print(job, problem, chosen, found)


def _straggler(text: str) -> tuple[tuple[int, int], float]:
    parts = text.split(":")
    try:
        stage, replica, factor = int(parts[0]), int(parts[1]), float(parts[2])
    except (IndexError, ValueError):
        stage = replica = factor = -1
    if len(parts) != 3 or min(stage, replica) < 0 or not 0 < factor < float("inf"):
        hint = "expected STAGE:REPLICA:FACTOR such as 0:3:2.5"
        raise typer.BadParameter(f"{hint}, got '{text}'", param_hint="--slow")
    return (stage, replica), factor


def _problem_and_plan(job: Path, plan: Path | None, changes: list[str]) -> tuple[Problem, Plan]:
    from heterps import api
    from heterps.errors import InputError
    from heterps.job.load import load_job, read_document
    from heterps.planning.plan import check_fits, read_plan
    from heterps.planning.problem import Problem

    loaded = load_job(job, changes)
    document = loaded.plan if plan is None else read_document(plan)
    try:
        problem = Problem.of(api.counted(loaded))
        if document is None:
            return problem, api.plan(problem, seed=loaded.seed)
        found = read_plan(problem, document)
        check_fits(problem, found)
        return problem, found
    except InputError as error:
        where = plan if plan is not None and error.path.startswith("plan") else job
        raise InputError(f"{where}: {error.path}", error.problem) from None


def _print(job: Path, problem: Problem, plan: Plan, found: Simulation) -> None:
    from heterps.cli import describe
    from heterps.cli.tables import Table, print_table, rate

    describe.print_title(job, problem)
    waits = ("input", "rows", "credit", "staleness", "commit")
    rows = []
    for number, (stage, seen) in enumerate(zip(plan.stages, found.stages, strict=True)):
        busy = (seen.compute_busy, seen.link_busy, seen.busiest)
        shares = (*busy, *(seen.waiting[cause] for cause in waits))
        name = (str(number), describe.layers(problem, stage), stage.type, str(stage.units))
        rows.append((*name, *(f"{100 * share:.0f} %" for share in shares)))
    print_table(Table(_TITLES, rows, left=("layers", "type")))
    print("shares of time: busy, and what the computing thread waits for")
    print()
    over = f"over {found.batches} batches of {found.micro_batches} micro-batches"
    describe.print_lines(
        [
            ("simulated", f"{describe.simulated(found)}"),
            ("with fill and drain", f"{rate(found.run_samples_per_s)} samples/s {over}"),
            ("formula", f"{rate(found.predicted)} samples/s"),
            ("verdict", found.bound),
        ]
    )
