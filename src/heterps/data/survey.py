"""What a data set holds: rows, columns, labels, missing values, and how ids are spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from heterps.data.base import GroupedFile
from heterps.data.categories import ids_of
from heterps.data.dataset import grouped
from heterps.data.schema import is_category, is_list, is_number, kind_of_values
from heterps.data.source import find_files
from heterps.data.writing import Progress, nothing
from heterps.errors import InputError, UnknownNameError

# Classes of the histogram: ids that occur once, 2 to 9 times, 10 to 99 times, …
_DECADES = (1, 2, 10, 100, 1000, 10_000, 100_000)
MOST_IDS = 5_000_000


@dataclass
class ColumnSurvey:
    """``values`` counts the present ones; those of a list count one by one. Of a column that no
    model can use only the missing values are counted.
    """

    name: str
    type: str
    role: str  # number, category, list or unusable
    rows: int = 0
    missing: int = 0
    values: int = 0
    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    _ids: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _counts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _held: int = 0
    complete: bool = True  # whether every id was counted

    def add(self, column: pa.Array) -> None:
        self.rows += len(column)
        self.missing += column.null_count
        if self.role == "unusable":
            return
        flat = column.flatten() if self.role == "list" else column
        present = flat.drop_null()
        self.values += len(present)
        if self.role == "number":
            self._add_numbers(present)
        elif self.complete:
            self._add_ids(ids_of(present, self.name))

    def _add_numbers(self, present: pa.Array) -> None:
        numbers = present.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if len(numbers):
            self.low = min(self.low, float(numbers.min()))
            self.high = max(self.high, float(numbers.max()))
            self.total += float(numbers.sum())

    def _add_ids(self, ids: npt.NDArray[np.int64]) -> None:
        distinct, counts = np.unique(ids, return_counts=True)
        self._ids.append(distinct)
        self._counts.append(counts)
        self._held += len(distinct)
        if self._held > MOST_IDS:
            self._merge()
            self.complete = self._held <= MOST_IDS // 2

    def _merge(self) -> None:
        if len(self._ids) > 1:
            distinct, places = np.unique(np.concatenate(self._ids), return_inverse=True)
            counts = np.zeros(len(distinct), np.int64)
            np.add.at(counts, places, np.concatenate(self._counts))
            self._ids, self._counts = [distinct], [counts]
        self._held = sum(map(len, self._ids))

    @property
    def mean(self) -> float | None:
        return self.total / self.values if self.role == "number" and self.values else None

    def as_document(self) -> dict[str, Any]:
        share = self.missing / self.rows if self.rows else 0.0
        document: dict[str, Any] = {"name": self.name, "type": self.type, "role": self.role}
        document["missing_share"] = share
        if self.role == "unusable":
            return document
        if self.role == "number":
            known = self.values > 0
            return document | {
                "min": self.low if known else None,
                "max": self.high if known else None,
                "mean": self.mean,
            }
        if self.role == "list":
            document["mean_length"] = self.values / self.rows if self.rows else 0.0
        return document | self._spread()

    def _spread(self) -> dict[str, Any]:
        self._merge()
        counts = self._counts[0] if self._counts else np.empty(0, np.int64)
        classes = np.searchsorted(_DECADES, counts, side="right") - 1
        histogram = np.bincount(classes, minlength=len(_DECADES)).tolist()
        top = float(counts.max() / max(counts.sum(), 1)) if len(counts) else 0.0
        return {
            "distinct_ids": len(counts),
            "complete": self.complete,
            "top_id_share": top,
            "ids_by_count": dict(zip(CLASSES, histogram, strict=True)),
        }


CLASSES = ("1", "2-9", "10-99", "100-999", "1k-9k", "10k-99k", "100k+")


@dataclass(frozen=True)
class Survey:
    files: int
    size_bytes: int
    row_groups: int
    largest_row_group: int
    rows: int
    label: str | None
    label_mean: float | None
    label_missing: int
    columns: tuple[dict[str, Any], ...]

    def as_document(self) -> dict[str, Any]:
        return {**self.__dict__, "columns": list(self.columns)}


def survey(
    paths: Sequence[str],
    label: str | None = None,
    progress: Progress = nothing,
) -> Survey:
    """Reads every row. ``label`` names the label column; by default ``label`` or ``click``, if
    there is one. Raises InputError.
    """
    files = [grouped(file) for file in find_files(paths, "PATH")]
    label = _label(files[0].schema, label, files[0].file.url)
    _check_equal(files)
    names = files[0].schema.names
    columns = {name: _empty(name, [file.schema for file in files], label) for name in names}
    total, done = sum(sum(file.sizes) for file in files), 0
    for file in files:
        for index, size in enumerate(file.sizes):
            table = file.read(index, list(columns))
            for name, column in columns.items():
                column.add(table[name].combine_chunks())
            done += size
            progress(done, total)
    sizes = [size for file in files for size in file.sizes]
    target = columns[label] if label else None
    return Survey(
        files=len(files),
        size_bytes=sum(file.file.size_bytes for file in files),
        row_groups=len(sizes),
        largest_row_group=max(sizes, default=0),
        rows=total,
        label=label,
        label_mean=target.mean if target else None,
        label_missing=target.missing if target else 0,
        columns=tuple(column.as_document() for column in columns.values()),
    )


def _label(schema: pa.Schema, given: str | None, url: str) -> str | None:
    if given is None:
        return next((name for name in ("label", "click") if name in schema.names), None)
    if given not in schema.names:
        raise UnknownNameError("--label", f"column of {url}", given, schema.names)
    return given


def _empty(name: str, schemas: Sequence[pa.Schema], label: str | None) -> ColumnSurvey:
    """With the types that it has in all files."""
    kinds = list(dict.fromkeys(schema.field(name).type for schema in schemas))
    known = [kind for kind in kinds if not pa.types.is_null(kind)] or kinds
    roles = {_role(kind) for kind in known}
    role = roles.pop() if len(roles) == 1 else "unusable"
    if all(map(is_number, known)) and (role == "unusable" or name == label):
        role = "number"
    if role in ("category", "list") and len({*map(kind_of_values, known)} - {""}) > 1:
        role = "unusable"
    return ColumnSurvey(name, ", ".join(map(str, kinds)), role)


def _role(kind: pa.DataType) -> str:
    if is_list(kind):
        return "list" if is_category(kind.value_type) else "unusable"
    if is_number(kind) and not pa.types.is_integer(kind):
        return "number"
    return "category" if is_category(kind) else "unusable"


def _check_equal(files: Sequence[GroupedFile]) -> None:
    for file in files[1:]:
        if file.schema.names != files[0].schema.names:
            problem = f"its columns are not those of {files[0].file.url}; inspect them apart"
            raise InputError(file.file.url, problem)
