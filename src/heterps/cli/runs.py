"""``heterps runs``: what was trained, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterps.cli.tables import Table, money, print_table, rate

if TYPE_CHECKING:
    from heterps.report.runs import RunSummary

_DEFAULT = Path("runs")
_EXAMPLES = """\b
Examples:
  heterps runs                  those in runs/
  heterps runs /data/runs       those in another folder, or one run
  heterps runs --json           one line of JSON a run
\b
A run is running, done, stopped (by Ctrl-C), failed, or lost: it ended without
a word. AUC and the like are those of the last validation, or where there was
none those of samples before they were trained on ("progressive").
"""


def runs_command(app: typer.Typer) -> None:
    app.command("runs", epilog=_EXAMPLES)(runs)


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Holds run folders, or is one.")
    ] = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a run.")] = False,
) -> None:
    """List runs."""
    from heterps.report.runs import find_runs

    found = find_runs(folder) if folder != _DEFAULT or folder.exists() else []
    if as_json:
        for run in found:
            print(json.dumps(run.as_document()))
    elif found:
        print_table(_table(found))
    else:
        print(f"{folder} holds no runs; heterps train JOB makes one in runs/")


def _table(found: list[RunSummary]) -> Table:
    titles = ["name", "state", "model", "steps", "samples/s", "result", "dollars"]
    rows = [
        [
            run.name,
            run.state,
            run.model,
            "" if run.steps is None else f"{run.steps:,}",
            "" if run.samples_per_s is None else rate(run.samples_per_s),
            _result(run),
            "" if run.dollars is None else money(run.dollars),
        ]
        for run in found
    ]
    return Table(titles, rows, left=["name", "state", "model", "result"])


def _result(run: RunSummary) -> str:
    if run.metric is None:
        return ""
    name = {"auc": "AUC", "logloss": "log-loss"}.get(run.metric, run.metric)
    return f"{name} {run.value:.4f}{' progressive' if run.progressive else ''}"
