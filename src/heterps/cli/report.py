"""``heterps report``: what was predicted of runs beside what they did, and what bounds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterps.cli.plan import print_json, write_text

if TYPE_CHECKING:
    from heterps.report.run_report import RunReport

_EXAMPLES = """\b
Examples:
  heterps report runs/ctrdnn-…           predicted beside measured, stage by stage
  heterps report runs/a runs/b           the same, and both side by side
  heterps report runs/a --html a.html    as a page that needs no other file
\b
It reads the run folder alone: while the run goes on, after it, or from a copy.
An error is that of the prediction, as a share of what was measured.
"""


def report_command(app: typer.Typer) -> None:
    app.command("report", epilog=_EXAMPLES)(report)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a run.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page as well.")] = None,
) -> None:
    """Compare runs with their predictions; say what bounds them."""
    from heterps.report.run_report import read_report

    found = [read_report(path) for path in runs]
    if html is not None:
        write_text(html, _page(found))
    if as_json:
        for entry in found:
            print_json(entry.as_document())
    else:
        _print(found)
        if html is not None:
            print(f"\npage  {html}")


def _print(found: list[RunReport]) -> None:
    from heterps.cli.describe import print_lines
    from heterps.cli.run_tables import comparison, stage_table, summary_lines, title
    from heterps.cli.tables import print_heading, print_table

    for number, entry in enumerate(found):
        if number:
            print()
        print_heading(title(entry))
        print()
        if entry.stages:
            print_table(stage_table(entry))
            print()
        print_lines(summary_lines(entry))
    if len(found) > 1:
        print()
        print_heading("Side by side")
        print_table(comparison(found))


def _page(found: list[RunReport]) -> str:
    from heterps.cli.run_tables import comparison, stage_table, summary_lines, title
    from heterps.report import run_page

    sections = []
    for entry in found:
        shown = stage_table(entry)
        sections += [
            run_page.heading(title(entry)),
            run_page.table(shown.titles, shown.rows, shown.left),
            run_page.lines(summary_lines(entry)),
        ]
    if len(found) > 1:
        shown = comparison(found)
        sections.append(run_page.heading("Side by side"))
        sections.append(run_page.table(shown.titles, shown.rows, shown.left))
    names = ", ".join(entry.summary.name for entry in found)
    return run_page.page(f"Predicted and measured: {names}", sections)
