"""``heterps resume``: go on from the last snapshot, under the same plan or another."""

from __future__ import annotations

from typing import Annotated

import typer

from heterps.cli.options import Changes, PlanFile, RunPath

_EXAMPLES = """\b
Examples:
  heterps resume runs/ctrdnn-1                     from its last whole snapshot
  heterps resume runs/ctrdnn-1 --plan other.json   under another plan
  heterps resume runs/ctrdnn-1 --set servers.count=1 --set workload.epochs=3
\b
A run that has no snapshot begins again. Snapshots hold weights by layer, rows
by bucket and cursors by lane, so neither plan, servers nor machine matter.
"""


def resume_command(app: typer.Typer) -> None:
    app.command("resume", epilog=_EXAMPLES)(resume)


def resume(
    run: RunPath,
    plan: PlanFile = None,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Go on with a run from its last snapshot."""
    from heterps.cli.train import run_and_show
    from heterps.job.load import read_document
    from heterps.runtime.resume import resumed

    document = None if plan is None else read_document(plan)
    with resumed(run, document, changes or [], _warn) as found:
        where = f"from step {found.start.step}" if found.start else "from its start"
        title = f"{run}, {where}"
        run_and_show(found.setup, found.folder, title, as_json, found.start)


def _warn(line: str) -> None:
    typer.echo(f"warning: {line}", err=True)
