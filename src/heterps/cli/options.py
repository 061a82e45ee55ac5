"""Arguments that several commands take alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="The job file (YAML or JSON).")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
PlanFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A plan as JSON, instead of the job's.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the job; repeatable."),
]
