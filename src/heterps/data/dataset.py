"""The row groups of all files of a data set, or of the part of it that is trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from heterps.data.base import GroupedFile
from heterps.data.batch import Batch, Slice, make_batch
from heterps.data.columns import Bags, Columns, Rows, decode
from heterps.data.criteo import CriteoGroups
from heterps.data.follow import as_found
from heterps.data.parquet import ParquetGroups
from heterps.data.schema import SlotKind, check_kinds, check_schema
from heterps.data.source import SUFFIXES, SourceFile, find_files, storage_of
from heterps.data.split import held_out, rows_of_part
from heterps.errors import InputError
from heterps.job.data import DataSpec

FORMATS: dict[str, type[GroupedFile]] = {
    ".parquet": ParquetGroups,
    **dict.fromkeys((".tsv", ".txt", ".tsv.gz", ".txt.gz"), CriteoGroups),
}
assert set(FORMATS) == set(SUFFIXES)
_AT_ONCE = 8

Part = Literal["train", "validation"]


class _Group(NamedTuple):
    file: GroupedFile
    number: int  # in its file


class Dataset:
    """``sizes`` counts the rows that each row group has in this part.

    Without ``labels`` neither labels nor weights are read; with ``binary`` labels are 0 or 1. Slots
    hold the same kind of values in all files, and as ``like`` says; ``kinds`` is what they hold.
    """

    def __init__(
        self,
        spec: DataSpec,
        files: Sequence[GroupedFile],
        part: Part = "train",
        *,
        labels: bool = True,
        binary: bool = False,
        field: str | None = None,
        like: Mapping[str, SlotKind] | None = None,
    ) -> None:
        for file in files:
            check_schema(file.schema, spec, file.file.url, labels=labels)
        schemas = ((file.file.url, file.schema) for file in files)
        self.kinds = check_kinds(schemas, spec, like or {})
        self.spec = spec
        self.part = part
        self.labels = labels
        self.binary = binary
        self._files = files
        self._columns = list(spec.column_paths(labels=labels))
        self._groups = [_Group(file, i) for file in files for i in range(len(file.sizes))]
        self._whole = [group.file.sizes[group.number] for group in self._groups]
        self._held = held_out(self._whole, spec.fraction or 0.0)
        self.sizes = tuple(self._sizes())
        if not sum(self.sizes):
            raise InputError(field or f"data.{part}", "holds no samples")

    @classmethod
    def open(
        cls,
        spec: DataSpec,
        part: Part = "train",
        base: str = "",
        *,
        labels: bool = True,
        binary: bool = False,
        on_read: Callable[[], None] = lambda: None,
        field: str | None = None,
        like: Mapping[str, SlotKind] | None = None,
    ) -> Dataset:
        """Finds the files of a part and reads what says how many rows they hold; relative paths
        start from ``base``. Of a folder that is followed, those that are there now. Text is read to
        its end for that: ``on_read`` is called now and then, in any thread. Raises InputError, with
        ``field`` where the paths come from elsewhere than the job's.
        """
        spec = as_found(spec, base) if part == "train" else spec
        paths, said_by = _paths(spec, part)
        files = find_files(paths, field or said_by, base, storage_of(spec, base))
        opened = all_grouped(files, on_read)
        return cls(spec, opened, part, labels=labels, binary=binary, field=field, like=like)

    def other(self, part: Part) -> Dataset:
        """The part that was set aside from the same files, or what is left of them: they are not
        opened again."""
        return Dataset(self.spec, self._files, part, labels=self.labels, binary=self.binary)

    @property
    def samples(self) -> int:
        return sum(self.sizes)

    def read(self, row_group: int, order: Rows | None = None) -> Columns:
        """The rows of a row group that belong to this part, in the given order of them. Raises
        InputError with the name of the file.
        """
        file, index = self._groups[row_group]
        table = file.read(index, self._columns)
        if table.num_rows != self._whole[row_group]:
            problem = f"row group {index} holds {table.num_rows} rows, expected"
            raise InputError(file.file.url, f"{problem} {self._whole[row_group]}: has it changed?")
        try:
            columns = decode(table, self.spec, self._rows(row_group, order), labels=self.labels)
            self._check_labels(columns)
        except InputError as error:
            problem = f"row group {index}, column '{error.path}': {error.problem}"
            raise InputError(file.file.url, problem) from None
        return columns

    def announce(self, row_group: int) -> int:
        """That it will be read soon; see GroupedFile."""
        file, index = self._groups[row_group]
        return file.announce(index, self._columns)

    def forget(self, row_group: int) -> None:
        file, index = self._groups[row_group]
        file.forget(index)

    def _sizes(self) -> list[int]:
        if self.spec.fraction is None:
            return self._whole
        if self.part == "validation":
            return self._held
        return [size - held for size, held in zip(self._whole, self._held, strict=True)]

    def _rows(self, row_group: int, order: Rows | None) -> Rows | None:
        if self.spec.fraction is None:
            return order
        size, held = self._whole[row_group], self._held[row_group]
        rows = rows_of_part(row_group, size, held, validation=self.part == "validation")
        return rows if order is None else rows[order]

    def _check_labels(self, columns: Columns) -> None:
        label = columns.label
        if not self.binary or label is None:
            return
        wrong = label[(label != 0) & (label != 1)]
        if len(wrong):
            raise InputError(self.spec.label, f"expected the labels 0 and 1, got {wrong[0]:g}")


def blank_batch(spec: DataSpec, samples: int) -> Batch:
    """What a model gets of such data, with zeros for values and one id in each list: enough to see
    what its layers read and make, where there is no file to read."""
    singles = tuple(slot.name for slot in spec.sparse if not slot.multi)
    bags = Bags(np.zeros(samples, np.int64), np.arange(samples + 1))
    columns = Columns(
        samples,
        np.zeros((samples, len(spec.dense)), np.float32),
        np.zeros(samples, np.float32),
        None if spec.weight is None else np.ones(samples, np.float32),
        singles,
        np.zeros((len(singles), samples), np.int64),
        {slot.name: bags for slot in spec.sparse if slot.multi},
    )
    return make_batch([Slice(columns, 0, samples)])


def all_grouped(
    files: Sequence[SourceFile], on_read: Callable[[], None] = lambda: None
) -> list[GroupedFile]:
    """Several at a time where they are far away. Raises InputError."""
    if all(file.is_local for file in files):
        return [grouped(file, on_read) for file in files]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(partial(grouped, on_read=on_read), files))


def grouped(file: SourceFile, on_read: Callable[[], None] = lambda: None) -> GroupedFile:
    """Raises InputError."""
    if not file.suffix:
        raise InputError(file.url, f"its ending tells no format; known are {', '.join(SUFFIXES)}")
    return FORMATS[file.suffix](file, on_read=on_read)


def _paths(spec: DataSpec, part: Part) -> tuple[Sequence[str], str]:
    """Where the files of a part are, and the field that says so."""
    if part == "train" or spec.fraction is not None:
        return spec.train, "data.train"
    if spec.validation is None:
        raise InputError("data.validation", "is missing: give a path, or a fraction such as 0.1")
    assert isinstance(spec.validation, tuple)
    return spec.validation, "data.validation"
