"""``heterps train``: run a plan, and say how it went."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heterps.cli.options import Changes, JobFile, PlanFile, on_disk
from heterps.cli.plan import print_json

if TYPE_CHECKING:
    from heterps.runtime.prepare import Setup
    from heterps.runtime.run_folder import RunFolder
    from heterps.runtime.snapshot import RunSnapshot, Snapshots
    from heterps.runtime.stop import Stop
    from heterps.runtime.training import TrainResult

_EXAMPLES = """\b
Examples:
  heterps train job.yaml                       plan, train, and keep it under runs/
  heterps train job.yaml --dry-run             check everything and price the run
  heterps train job.yaml --set workload.epochs=2 --set optimizer.lr=0.01
  heterps train job.yaml --plan plan.json      a plan that `heterps plan --out` wrote
  heterps train job.yaml --set engine=ray      on several machines: docs/ray.md
\b
The job file names model, data, tables, optimizer, workload and cluster. Every
process of the run ends with this one. Ctrl-C takes a snapshot and stops;
`heterps resume RUN` goes on from it. A second Ctrl-C stops at once. SIGTERM and
SIGHUP do as Ctrl-C does.
"""


def train_command(app: typer.Typer) -> None:
    app.command("train", epilog=_EXAMPLES)(train)


def train(
    job: JobFile,
    plan: PlanFile = None,
    changes: Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The run folder.",
            show_default="a new one under runs/",
            callback=on_disk,
        ),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="How to plan.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, price the run, start nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Train a model as planned: data, parameter servers, stages of workers."""
    setup = _prepared(job, plan, changes or [], method, dry_run)
    if dry_run:
        _show_dry_run(setup, str(job), as_json)
        return
    from heterps.runtime.run_folder import RunFolder

    with RunFolder.create(out, setup.job, setup.plan_document()) as folder:
        run_and_show(setup, folder, str(job), as_json)


def run_and_show(
    setup: Setup, folder: RunFolder, title: str, as_json: bool, start: RunSnapshot | None = None
) -> None:
    """Runs to the end, or to a Ctrl-C or its like: then a snapshot is there to go on from."""
    from heterps.cli.output import enduring_output
    from heterps.cli.train_report import print_result
    from heterps.runtime.snapshot import Snapshots
    from heterps.runtime.stop import Stop

    stop = Stop()
    with enduring_output():  # the run folder holds it all
        try:
            result = _run(setup, folder, title, as_json, start, stop)
        except KeyboardInterrupt:
            there = _what_there_is(Snapshots.of(folder.path, setup.job))
            again = f"heterps resume {quote(str(folder.path))}"
            typer.echo(f"interrupted; {there}: {again}", err=True)
            raise typer.Exit(128 + stop.signal) from None
        if not as_json:
            print_result(setup, result)
    if as_json:
        print_json(result.as_document())


def _what_there_is(snapshots: Snapshots) -> str:
    from heterps.errors import InputError

    try:
        step = snapshots.last_step
    except InputError as error:
        return f"{error}; go on, once it can, with"
    if step is None:
        return "there is no snapshot; begin again with"
    return f"there is a snapshot of step {step:,}; go on with"


def _prepared(
    job: Path, plan: Path | None, changes: list[str], method: str, dry_run: bool
) -> Setup:
    from heterps.cli.profile import ensure_profile
    from heterps.errors import InputError
    from heterps.job.load import load_job, read_document
    from heterps.runtime.prepare import prepare

    document = None if plan is None else read_document(plan)
    if plan is None:
        ensure_profile(job, changes, measure=not dry_run)
    loaded = load_job(job, changes)
    try:
        return prepare(loaded, document, method)
    except InputError as error:
        if type(error) is not InputError:
            raise
        where = str(plan) if plan is not None and error.path.startswith("plan") else str(job)
        raise InputError(f"{where}: {error.path}", error.problem) from error


def _run(
    setup: Setup,
    folder: RunFolder,
    title: str,
    as_json: bool,
    start: RunSnapshot | None,
    stop: Stop,
) -> TrainResult:
    from heterps.cli.train_report import LiveLine, print_start
    from heterps.runtime.training import train_run

    if not as_json:
        print_start(setup, title, folder.path)
    with stop.listening(), LiveLine(setup, quiet=as_json) as line:
        return train_run(setup, folder, line.show, start=start, stop=stop, notice=line.note)


def _show_dry_run(setup: Setup, title: str, as_json: bool) -> None:
    from heterps.cli.train_report import dry_run_document, print_dry_run

    if as_json:
        print_json(dry_run_document(setup))
    else:
        print_dry_run(setup, title)
