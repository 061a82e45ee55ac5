"""``heterps data``: make, convert and look at data sets."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterps.cli.options import on_disk
from heterps.cli.rows_bar import RowsBar
from heterps.cli.tables import Table, duration, percent, print_heading, print_table

if TYPE_CHECKING:
    from heterps.data.survey import Survey

_SYNTH = """\b
Examples:
  heterps data synth clicks/ --rows 1000000        as Criteo's, one file
  heterps data synth clicks/ --rows 1000000 --files 8 --seed 1
  heterps data synth m/ --rows 200000 --kind match users, histories, items
  heterps data synth n/ --rows 200000 --kind next  the item that comes next
\b
OUT gets train/ and validation/ (Parquet), data.yaml (the section for a job)
and synthetic.json (the settings, and what the true model reaches on the
validation part: no trained model can do better). Rows depend on the seed and
not on the number of files; asking for what is there already does nothing.
"""
_CONVERT = """\b
Examples:
  heterps data convert day_0.tsv parquet/        Criteo's TSV, also .gz
  heterps data convert 'raw/*.txt.gz' parquet/
  heterps data convert big.parquet small/        other row groups
\b
A file appears when it is whole. Row groups are what is shuffled and read at
once: 65,536 rows are a good size, and a reader holds one or two for each of
its lanes.
"""
_INSPECT = """\b
Examples:
  heterps data inspect clicks/train
  heterps data inspect 'd/*.parquet' --label click --json
\b
Reads every row. Numbers are shown with their range, categories with how many
distinct ids they have and how many of these occur once, 2 to 9 times, and so
on: ids that occur once teach a model nothing.
"""


def data_commands(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Make, convert and look at data sets.")
    group.command("synth", epilog=_SYNTH)(synth)
    group.command("convert", epilog=_CONVERT)(convert)
    group.command("inspect", epilog=_INSPECT)(inspect)
    app.add_typer(group, name="data")


_Json = Annotated[bool, typer.Option("--json", help="One line of JSON.")]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder.", callback=on_disk)],
    rows: Annotated[int, typer.Option(min=1, help="To train on.")],
    validation_rows: Annotated[
        int | None, typer.Option(min=1, help="To validate on.", show_default="a tenth of --rows")
    ] = None,
    files: Annotated[int, typer.Option(min=1, help="To spread the rows over.")] = 1,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="clicks, match (two towers) or next (nce).")
    ] = "clicks",
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 0,
    slots: Annotated[int, typer.Option(min=0, help="Columns of categories.")] = 26,
    ids: Annotated[int, typer.Option(min=2, help="Distinct ids a slot can have.")] = 1_000_000,
    dense: Annotated[int, typer.Option(min=0, help="Columns of numbers.")] = 13,
    missing: Annotated[float, typer.Option(min=0, metavar="SHARE", help="Values left out.")] = 0.0,
    force: _Force = False,
    as_json: _Json = False,
) -> None:
    """Make up data with a known best result."""
    from heterps.data.synthetic import SynthSpec, synthesise

    held = max(1, rows // 10) if validation_rows is None else validation_rows
    spec = SynthSpec(rows, held, files, kind, seed, slots, ids, dense, missing)
    started = time.monotonic()
    with RowsBar("writing") as bar:
        summary = synthesise(spec, out, bar.report, force=force)
    if as_json:
        print(json.dumps({"out": str(out), **summary}))
        return
    took = "was there already" if summary["reused"] else duration(time.monotonic() - started)
    print_heading(f"{out}: {rows:,} rows to train on, {held:,} to validate on ({took})")
    print(f"positive  {percent(summary['train']['positive_share'])}")
    print(f"ceiling   {_ceiling(summary['ceiling'])}")
    print(f"next      heterps data inspect {out}/train; the section for a job is {out}/data.yaml")


def _ceiling(ceiling: dict[str, float | None]) -> str:
    figures = {"auc": "AUC", "logloss": "log-loss", "nats_per_item": "nats an item"}
    known = [f"{figures[name]} {value:.4f}" for name, value in ceiling.items() if value is not None]
    return f"{', '.join(known)} (the true model on the validation part)"


def convert(
    sources: Annotated[
        list[str], typer.Argument(metavar="IN... OUT", help="Files, patterns or URLs; a folder.")
    ],
    row_group_rows: Annotated[
        int, typer.Option(min=1, metavar="ROWS", help="In a row group.")
    ] = 65536,
    force: _Force = False,
    as_json: _Json = False,
) -> None:
    """Turn Criteo's TSV, or Parquet, into Parquet with small row groups."""
    from heterps.data.convert import convert as convert_files

    if len(sources) < 2:
        raise typer.BadParameter("give the files, then the folder to write to", param_hint="OUT")
    *given, out = sources
    on_disk(Path(out))
    with RowsBar("converting") as bar:
        written = convert_files(
            given, Path(out), bar.report, row_group_rows=row_group_rows, force=force
        )
    if as_json:
        print(json.dumps({"files": [str(path) for path in written]}))
        return
    for path in written:
        print(path)


def inspect(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, patterns, folders.")],
    label: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The label's column.", show_default="label or click"),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show schema, counts, label rate, missing values and ids of a data set."""
    from heterps.data.survey import survey

    with RowsBar("reading") as bar:
        found = survey(paths, label, bar.report)
    if as_json:
        print(json.dumps(found.as_document()))
        return
    _print_survey(found)


def _print_survey(found: Survey) -> None:
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    print_heading(f"{found.rows:,} rows in {files}, {found.size_bytes / 1e6:,.1f} MB")
    print(f"row groups  {found.row_groups:,}, the largest of {found.largest_row_group:,} rows")
    rate = "none found" if found.label is None else f"{found.label}"
    if found.label_mean is not None:
        rate += f", mean {found.label_mean:.4f}"
    if found.label_missing:
        rate += f", {found.label_missing:,} missing, which training refuses"
    print(f"label       {rate}")
    numbers = [column for column in found.columns if column["role"] == "number"]
    others = [column for column in found.columns if column["role"] == "unusable"]
    slots = [column for column in found.columns if column["role"] in ("category", "list")]
    if numbers:
        print()
        print_table(_numbers(numbers))
    if slots:
        print_heading("\nthe last columns: how many ids occur that often")
        print_table(_slots(slots))
    if others:
        print_heading("\nneither numbers nor categories, or not the same in all files")
        print_table(_others(others))


def _numbers(columns: list[dict[str, Any]]) -> Table:
    rows = [
        [
            *(column["name"], column["type"], percent(column["missing_share"])),
            *("-" if column[key] is None else f"{column[key]:.4g}" for key in _RANGE),
        ]
        for column in columns
    ]
    return Table(["column", "type", "missing", *_RANGE], rows, left=["column", "type"])


_RANGE = ("min", "mean", "max")


def _others(columns: list[dict[str, Any]]) -> Table:
    rows = [
        [column["name"], column["type"], percent(column["missing_share"])] for column in columns
    ]
    return Table(["column", "type", "missing"], rows, left=["column", "type"])


def _slots(columns: list[dict[str, Any]]) -> Table:
    from heterps.data.survey import CLASSES

    titles = ["slot", "type", "missing", "a row", "ids", "top id", *CLASSES]
    rows = [
        [
            *(column["name"], column["type"], percent(column["missing_share"])),
            f"{column.get('mean_length', 1):.3g}",
            f"{'' if column['complete'] else '>'}{column['distinct_ids']:,}",
            percent(column["top_id_share"]),
            *(f"{column['ids_by_count'][name]:,}" for name in CLASSES),
        ]
        for column in columns
    ]
    return Table(titles, rows, left=["slot", "type"])
