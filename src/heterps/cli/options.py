"""Arguments that several commands take alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")  # a Path has one of the two slashes
JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="The job file (YAML or JSON).")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
PlanFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A plan as JSON, instead of the job's.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the job; repeatable."),
]


def on_disk(folder: Path | None) -> Path | None:
    """For a folder that is made: what looks like a URL would be one called ``s3:`` here."""
    if folder is not None and _URL.match(str(folder)):
        raise typer.BadParameter(f"'{folder}' looks like a URL: expected a folder on a disk")
    return folder
