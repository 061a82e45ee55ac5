"""Any format that can be read, as Parquet with small row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from heterps.data.base import GroupedFile
from heterps.data.dataset import grouped
from heterps.data.source import find_files
from heterps.data.writing import Progress, nothing, parquet_writer
from heterps.errors import InputError

ROW_GROUP_ROWS = 65536


def convert(
    sources: Sequence[str],
    out: Path,
    progress: Progress = nothing,
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    force: bool = False,
) -> list[Path]:
    """Writes a Parquet file into the folder ``out`` for each source, with its name, and returns
    their paths; each appears when it is whole. Raises InputError.
    """
    files = find_files(sources, "IN")
    targets = [out / f"{_stem(file.path, file.suffix)}.parquet" for file in files]
    _check(targets, [file.path for file in files], force=force)
    opened = [grouped(file) for file in files]
    total = sum(sum(file.sizes) for file in opened)
    done = 0
    for file, target in zip(opened, targets, strict=True):
        with parquet_writer(target, _plain(file.schema)) as writer:
            for table in _regrouped(file, row_group_rows):
                writer.write_table(table, row_group_size=row_group_rows)
                done += table.num_rows
                progress(done, total)
    return targets


def _regrouped(file: GroupedFile, rows: int) -> Iterator[pa.Table]:
    """The rows of a file in tables of that many, the last one smaller."""
    schema = _plain(file.schema)
    held = schema.empty_table()
    for index in range(len(file.sizes)):
        held = pa.concat_tables([held, file.read(index, schema.names).cast(schema)])
        while held.num_rows >= rows:
            yield held.slice(0, rows)
            held = held.slice(rows)
    if held.num_rows:
        yield held


def _plain(schema: pa.Schema) -> pa.Schema:
    """Texts as texts: Parquet makes dictionaries of its own, and blocks have different ones."""
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def _stem(path: str, suffix: str) -> str:
    return path.rpartition("/")[2].removesuffix(suffix)


def _check(targets: Sequence[Path], sources: Sequence[str], *, force: bool) -> None:
    for index, target in enumerate(targets):
        if target in targets[:index]:
            problem = f"two sources would become {target.name}; convert them into two folders"
            raise InputError(str(target), problem)
        if target.exists() and target.resolve() in [Path(source).resolve() for source in sources]:
            raise InputError(str(target), "is a source itself; give another folder")
        if target.exists() and not force:
            raise InputError(str(target), "is there already; give another folder, or --force")
