"""``heterps evaluate``: how well a trained model does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterps.cli.rows_bar import RowsBar
from heterps.cli.tables import print_heading
from heterps.errors import InputError

if TYPE_CHECKING:
    from heterps.runtime.metrics import Counts
    from heterps.runtime.trained import Which

_EXAMPLES = """\b
Examples:
  heterps evaluate runs/ctrdnn-20260101-120000      on the job's validation data
  heterps evaluate RUN --data 'day_7/*.parquet'     on other data
  heterps evaluate RUN --best --json                the best model, as JSON
\b
For click models: AUC (0.5 guesses, 1 is perfect), log-loss in nats a sample,
normalised entropy (log-loss as a share of that of always predicting the mean:
below 1 is better than that) and calibration (mean prediction over mean label:
1 is right). For nce: the sampled loss and recall@k of the job. Data that
heterps data synth made is shown with the ceiling that no model can beat.
"""

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")]
Best = Annotated[
    bool, typer.Option("--best", help="The best model in validation, not the last one.")
]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON.")]
_TITLES = {
    "auc": "AUC",
    "logloss": "log-loss",
    "normalised_entropy": "normalised entropy",
    "calibration": "calibration",
    "loss": "loss",
}


def evaluate_command(app: typer.Typer) -> None:
    app.command("evaluate", epilog=_EXAMPLES)(evaluate)


def evaluate(
    run: Run,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Other files; may be repeated.", show_default="the job's"
        ),
    ] = None,
    best: Best = False,
    as_json: Json = False,
) -> None:
    """Measure the model of a run."""
    from heterps.runtime.evaluation import planted_ceiling
    from heterps.runtime.trained import load_run

    found = load_run(run)
    which: Which = "best" if best else "model"
    about = found.about(which)
    with data_given_as("--data"), RowsBar("evaluating") as bar:
        counts = found.evaluate(data or (), which, bar.report)
    ceiling = {} if data else planted_ceiling(found.job)
    values = {name: value for name, value in counts.values().items() if not math.isnan(value)}
    if as_json:
        answer = {"run": str(run), "model": which, "step": about.get("step")}
        print(json.dumps({**answer, "samples": counts.samples, **values, "ceiling": ceiling}))
        return
    kind = "the best model" if best else "the model"
    at = f" after step {about['step']:,}" if isinstance(about.get("step"), int) else ""
    print_heading(f"{run}: {kind}{at} on {counts.samples:,} samples")
    _print_values(counts, values, ceiling)


@contextmanager
def data_given_as(field: str) -> Iterator[None]:
    """What Python calls ``data`` has another name here."""
    try:
        yield
    except InputError as error:
        if error.path != "data":
            raise
        raise InputError(field, error.problem) from None


def _print_values(counts: Counts, values: dict[str, float], ceiling: dict[str, float]) -> None:
    if "logloss" in values and math.isclose(values["logloss"], values["loss"]):
        del values["loss"]  # without weights they are the same
    titles = _TITLES | {"recall": f"recall@{getattr(counts, 'k', '')}"}
    width = max(len(titles[name]) for name in values)
    for name, value in values.items():
        best = f"  (ceiling {ceiling[name]:.4f})" if name in ceiling else ""
        print(f"{titles[name]:{width}}  {value:.4f}{best}")
