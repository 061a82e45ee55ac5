"""``heterps snapshot``: what a run can go on from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterps.cli.plan import print_json

if TYPE_CHECKING:
    from heterps.runtime.snapshot import Snapshots
    from heterps.storage.places import Place


def snapshot_commands(app: typer.Typer) -> None:
    commands = typer.Typer(no_args_is_help=True, help="Look at the snapshots of a run.")
    commands.command("list")(list_snapshots)
    commands.command("verify")(verify)
    app.add_typer(commands, name="snapshot")


Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def list_snapshots(run: Run, as_json: AsJson = False) -> None:
    """The snapshots of a run, the newest first."""
    from heterps.cli.tables import Table, print_table

    rows = [_about(held, path) for held in _places(run) for path in held.paths()]
    if as_json:
        print_json({"run": str(run), "snapshots": rows})
        return
    if not rows:
        print(f"{run} has no snapshot")
        return
    cells = [
        (row["name"], f"{row['step']:,}", f"{row['bytes']:,}", row["delta_of"] or "")
        for row in rows
    ]
    print_table(Table(("name", "step", "bytes", "delta of"), cells, left=("name", "delta of")))


def verify(run: Run, as_json: AsJson = False) -> None:
    """Read every file of every snapshot and compare it with its checksum."""
    from heterps.errors import SnapshotError
    from heterps.runtime.snapshot import Check

    check = Check()
    rows: list[dict[str, Any]] = []
    for path in [path for held in _places(run) for path in held.paths()]:
        try:
            check(path)
            rows.append({"name": path.name, "whole": True, "problem": None})
        except SnapshotError as error:
            rows.append({"name": path.name, "whole": False, "problem": str(error)})
    if as_json:
        print_json({"run": str(run), "snapshots": rows})
    else:
        for row in rows:
            print(f"{row['name']}  {'whole' if row['whole'] else row['problem']}")
        if not rows:
            print(f"{run} has no snapshot")
    if not all(row["whole"] for row in rows):
        raise typer.Exit(1)


def _places(run: Path) -> list[Snapshots]:
    """Where they go, and where they were before, as long as the run needs those."""
    from heterps.runtime.run_folder import RunFolder
    from heterps.runtime.snapshot import Snapshots

    folder = RunFolder.open(run)
    return Snapshots.of(folder.path, folder.job).everywhere()


def _about(snapshots: Snapshots, path: Place) -> dict[str, Any]:
    from heterps.runtime.shelves import step_of
    from heterps.runtime.snapshot import base_of

    about = {"name": path.name, "step": step_of(path), "bytes": snapshots.size_bytes(path)}
    return {**about, "delta_of": base_of(path)}
