"""``heterps init``: a folder to start from."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from heterps.cli.options import on_disk
from heterps.cli.rows_bar import RowsBar
from heterps.cli.tables import print_heading

_EXAMPLES = """\b
Examples:
  heterps init first && heterps train first/job.yaml
\b
The folder gets job.yaml (commented), model.py (a model of your own, to be
changed), data/ (made up, with a known best result), cluster.yaml (what can be
rented) and profile.json (how long each layer takes on each of it).
"""
_WHAT = {
    "job.yaml": "what to train, on what, under which limits: begin here",
    "model.py": "the model, yours to change",
    "data/": "60,000 samples to train on, 12,000 to validate on, made up",
    "cluster.yaml": "what can be rented, and for how much",
    "profile.json": "how long each layer takes on each of it, made up",
}


def init_command(app: typer.Typer) -> None:
    app.command("init", epilog=_EXAMPLES)(init)


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty folder.", callback=on_disk)
    ],
) -> None:
    """Write a job, a model and data to start from."""
    from heterps.cli.starter import write_starter

    with RowsBar("writing data") as bar:
        ceiling = write_starter(folder, bar.report)
    print_heading(f"{folder} holds")
    for name, what in _WHAT.items():
        print(f"  {name:13} {what}")
    print(f"\nNo model can beat an AUC of {ceiling['auc']:.4f} on these data. Next:")
    for command in ("plan", "train --dry-run", "train"):
        print(f"  heterps {command} {quote(f'{folder}/job.yaml')}")
