"""Whether the columns of a file fit what the job says about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from heterps.data.categories import is_text
from heterps.errors import InputError, UnknownNameError
from heterps.job.data import DataSpec, SparseSlot


def check_schema(schema: pa.Schema, spec: DataSpec, url: str, *, labels: bool) -> None:
    """Raises InputError for a column that is not there, or of a type that does not fit."""
    for column, field in spec.column_paths(labels=labels).items():
        if column not in schema.names:
            raise UnknownNameError(f"data.{field}", f"column of {url}", column, schema.names)
    slots = {slot.name: slot for slot in spec.sparse}
    for column, field in spec.column_paths(labels=labels).items():
        kind = schema.field(column).type
        slot = slots.get(column)
        problem = _slot_problem(slot, kind) if slot else _number_problem(kind)
        if problem:
            raise InputError(f"data.{field}", f"column '{column}' of {url} {problem}")


class SlotKind(NamedTuple):
    """What a slot holds, and where: in a file's column of a ``type``, or in what ``where`` was
    trained on."""

    kind: str
    where: str
    type: str = ""

    @property
    def said(self) -> str:
        if self.type:
            return f"that of {self.where} {self.kind} ({self.type})"
        return f"and {self.where} was trained on {self.kind}"

    @property
    def fix(self) -> str:
        return "make them the same" if self.type else f"write it as {self.kind}"


def check_kinds(
    schemas: Iterable[tuple[str, pa.Schema]], spec: DataSpec, known: Mapping[str, SlotKind]
) -> dict[str, SlotKind]:
    """What each slot holds in files, given by name, and by what is ``known``. Raises InputError for
    whole numbers in one and texts in another: these have different ids.
    """
    found = dict(known)
    fields = spec.column_paths(labels=False)
    for url, schema in schemas:
        for slot in (slot for slot in spec.sparse if slot.name in schema.names):
            held = schema.field(slot.name).type
            kind = kind_of_values(held)
            before = found.setdefault(slot.name, SlotKind(kind, url, str(held))) if kind else None
            if before and kind != before.kind:
                raise InputError(
                    f"data.{fields[slot.name]}",
                    f"column '{slot.name}' of {url} holds {kind} ({held}), {before.said}, "
                    f"which have other ids: {before.fix}",
                )
    return found


def kind_of_values(kind: pa.DataType) -> str:
    """Of a column of categories, or of lists of them; empty where all are missing."""
    if is_list(kind) or pa.types.is_dictionary(kind):
        return kind_of_values(kind.value_type)
    if pa.types.is_null(kind):
        return ""
    return "texts" if is_text(kind) else "whole numbers"


def _number_problem(kind: pa.DataType) -> str:
    return "" if is_number(kind) else f"holds {kind}, expected numbers"


def _slot_problem(slot: SparseSlot, kind: pa.DataType) -> str:
    listed = is_list(kind)
    if listed and not slot.multi:
        return f"holds lists: write {{name: {slot.name}, multi: true}}"
    if slot.multi and not listed:
        return f"holds {kind}, one value a row: leave out multi"
    value = kind.value_type if listed else kind
    if not is_category(value):
        return f"holds {kind}, expected whole numbers or texts"
    if not slot.hash and not pa.types.is_integer(value):
        return f"holds {kind}: leave out hash, which only whole numbers can do without"
    return ""


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_number(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in kinds) or bool(pa.types.is_null(kind))


def is_category(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_category(kind.value_type)
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_null, is_text)
    return any(test(kind) for test in kinds)
