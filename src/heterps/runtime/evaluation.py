"""Measuring and using a trained model on data, in one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from torch import Tensor

from heterps.data.batch import Batch
from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.prefetch import Prefetch
from heterps.data.reader import LaneReader
from heterps.data.schema import SlotKind
from heterps.data.source import find_files
from heterps.data.synthetic import SUMMARY
from heterps.data.writing import Progress, aside, nothing, parquet_writer
from heterps.errors import InputError
from heterps.job.data import DataSpec
from heterps.job.spec import Job
from heterps.models.batch import PREDICTION
from heterps.models.predictor import Predictor
from heterps.models.sampled import RANK
from heterps.runtime.metrics import Counts, counts_for
from heterps.storage.access import Storage
from heterps.storage.publish import is_url

_SAMPLES = 4096  # at once
FORMATS = (".parquet", ".csv")


def evaluate(
    predictor: Predictor,
    job: Job,
    task: str | None,
    data: Sequence[str] = (),
    progress: Progress = nothing,
    like: Mapping[str, SlotKind] | None = None,
) -> Counts:
    """How well a model does on the validation data of its job, or on other files; slots have to
    hold what ``like`` says. Raises InputError for data that cannot be read or a model that cannot
    be measured.
    """
    samples = open_data(job, data, labels=True, binary=task == "binary", like=like)
    counts = counts_for(task, job.validation.k)
    for number, batch in enumerate(in_order(samples, progress)):
        counts.observe(predictor.everything(batch, number), batch)
    if all(np.isnan(value) for value in counts.values().values()):
        problem = f"has nothing to be measured by: {counts.missing}"
        raise InputError("model", f"{problem}; heterps predict works as it is")
    return counts


def predict(
    predictor: Predictor,
    job: Job,
    data: Sequence[str],
    out: Path | str,
    progress: Progress = nothing,
    like: Mapping[str, SlotKind] | None = None,
) -> int:
    """Write a prediction for every row of files, in their order, to a .parquet or .csv file or URL,
    which appears when it is whole; how many. Labels and weights are not read, and slots have to
    hold what ``like`` says. Raises InputError.
    """
    check_name(out)
    samples = open_data(job, data, labels=False, like=like)
    batches = enumerate(in_order(samples, progress))
    tables = (_table(predictor.everything(batch, number)) for number, batch in batches)
    first = next(tables)
    with _writer(out, first.schema, storage_of(job)) as write:
        write(first)
        for table in tables:
            write(table)
    return samples.samples


def storage_of(job: Job) -> Storage:
    """How the job's files are reached, for writing."""
    return Storage(job.data.storage if job.data is not None else {})


def check_name(out: Path | str) -> None:
    """Raises InputError for a file that predictions cannot be written to."""
    if PurePosixPath(out).suffix not in FORMATS:
        raise InputError(str(out), f"expected a name that ends in {' or '.join(FORMATS)}")


def planted_ceiling(job: Job) -> dict[str, float]:
    """What no model can beat on the job's validation data, where they were made up; else empty."""
    assert job.data is not None
    if not isinstance(job.data.validation, tuple):
        return {}
    if any(is_url(path) for path in job.data.validation):
        return {}
    folders = {Path(f.path).parent for f in find_files(job.data.validation, base=job.folder)}
    if len(folders) != 1:
        return {}
    try:
        summary = json.loads((folders.pop().parent / SUMMARY).read_text(encoding="utf-8"))
        return {k: float(v) for k, v in summary["ceiling"].items() if v is not None}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def open_data(
    job: Job,
    data: Sequence[str],
    *,
    labels: bool,
    binary: bool = False,
    like: Mapping[str, SlotKind] | None = None,
) -> Dataset:
    """Files with the columns of a job, or its validation data. Raises InputError."""
    if job.data is None:
        raise InputError("data", "is missing: the job does not say what its columns are")
    if data:  # these paths start from the working folder
        given = {"train": tuple(data), "validation": None, "follow": None}
        spec: DataSpec = job.data.model_copy(update=given)
        return Dataset.open(spec, labels=labels, binary=binary, field="data", like=like)
    if job.data.validation is None:
        raise InputError("data", "the job names no validation data: say what to evaluate on")
    own, where = job.data, job.folder
    return Dataset.open(own, "validation", where, labels=labels, binary=binary, like=like)


def in_order(data: Dataset, progress: Progress = nothing) -> Iterator[Batch]:
    """All samples once, as they stand in the files."""
    plan = LanePlan(data.samples, 1, _SAMPLES)
    lanes = Lanes(plan, data.sizes, shuffle=False)
    reader = LaneReader(data, lanes, [0], stop=plan.per_epoch)
    with Prefetch(reader, stop=plan.per_epoch) as ahead:
        for number in range(plan.per_epoch):
            yield ahead.micro_batch(number)
            progress(plan.span_of(number).stop, data.samples)


def _table(made: dict[str, Tensor]) -> pa.Table:
    """A column of predictions, or several if the model makes more than one a sample."""
    prediction = made[PREDICTION].flatten(1) if made[PREDICTION].dim() > 1 else made[PREDICTION]
    columns: dict[str, Any] = {PREDICTION: prediction.numpy()}
    if prediction.dim() > 1:
        width = range(prediction.shape[1])
        columns = {f"{PREDICTION}_{i}": prediction[:, i].numpy() for i in width}
    if RANK in made:
        columns[RANK] = made[RANK].numpy()
    return pa.table(columns)


@contextmanager
def _writer(
    out: Path | str, schema: pa.Schema, storage: Storage
) -> Iterator[Callable[[pa.Table], None]]:
    if PurePosixPath(out).suffix == ".parquet":
        with parquet_writer(out, schema, storage) as writer:
            yield writer.write_table
        return
    with aside(out, storage) as partial, pyarrow.csv.CSVWriter(partial, schema) as csv:
        yield csv.write_table
