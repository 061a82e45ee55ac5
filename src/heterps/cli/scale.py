"""``heterps scale``: change how many units a run may use while it goes on."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from heterps.cli.plan import print_json

_EXAMPLES = """\b
Examples:
  heterps scale runs/ctrdnn-1 cpu=8             at most 8 units of cpu from now on
  heterps scale runs/ctrdnn-1 cpu=4 v100=1
\b
When units that the run uses go, it is planned anew at once; when there are
more, at its next snapshot, if what is gained pays for the restart.
"""


def scale_command(app: typer.Typer) -> None:
    app.command("scale", epilog=_EXAMPLES)(scale)


def scale(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    limits: Annotated[list[str], typer.Argument(metavar="TYPE=UNITS...", help="New limits.")],
    as_json: Annotated[bool, typer.Option("--json", help="All limits as JSON.")] = False,
) -> None:
    """Change the limits of a run's resource types."""
    from heterps.report.runs import summarise
    from heterps.runtime.elastic import shown, write_limits
    from heterps.runtime.run_folder import RunFolder

    folder = RunFolder.open(run)
    now = write_limits(folder.path, folder.job, dict(_read(text) for text in limits))
    state = summarise(folder.path).state
    if as_json:
        print_json({"run": str(run), "limits": now, "state": state})
    else:
        print(f"limits of {run}: {shown(now)}")
    if state != "running":
        again = f"`heterps resume {quote(str(run))}` goes on with it"
        note = f"note: the run is {state}, and nobody is there to follow them until {again}"
        typer.echo(note, err=True)


def _read(text: str) -> tuple[str, int]:
    from heterps.errors import InputError

    name, sign, units = text.partition("=")
    if not sign or not units.isdecimal():
        raise InputError("scale", f"expected TYPE=UNITS such as cpu=8, got '{text}'")
    return name, int(units)
