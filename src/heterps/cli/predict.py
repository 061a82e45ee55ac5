"""``heterps predict``: what a trained model says about data."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from heterps.cli.evaluate import Best, Json, Run, data_given_as
from heterps.cli.rows_bar import RowsBar

_EXAMPLES = """\b
Examples:
  heterps predict RUN new.parquet --out scores.parquet
  heterps predict RUN 'd/*.tsv.gz' --out scores.csv --best
  heterps predict RUN s3://b/new/ --out s3://b/scores.parquet
\b
One row for each row of the data, in the order of the files' names. The data
need the input columns of the job; labels and weights may be missing.
"""


def predict_command(app: typer.Typer) -> None:
    app.command("predict", epilog=_EXAMPLES)(predict)


def predict(
    run: Run,
    data: Annotated[list[str], typer.Argument(metavar="DATA", help="Files, patterns, folders.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="To write: .parquet or .csv; or a URL.")],
    best: Best = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write the predictions of a run's model."""
    from heterps.errors import InputError
    from heterps.runtime.evaluation import storage_of
    from heterps.runtime.trained import load_run
    from heterps.storage.publish import is_there

    trained = load_run(run)
    if not force and is_there(out, storage_of(trained.job)):
        raise InputError(out, "exists already; --force overwrites it")
    with data_given_as("DATA"), RowsBar("predicting") as bar:
        rows = trained.predict(data, out, "best" if best else "model", bar.report)
    if as_json:
        print(json.dumps({"run": str(run), "out": out, "rows": rows}))
    else:
        print(f"{out}: {rows:,} predictions")
