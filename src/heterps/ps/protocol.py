"""What clients and servers say to each other: verbs, specs of tables, errors as fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from heterps.errors import (
    HeterPSError,
    InputError,
    NotCommittedError,
    ServerError,
    SnapshotError,
    StoreError,
    UnknownNameError,
)

DONE, FAILED = "done", "failed"
CAPTURED = "captured"  # in place of a folder: held, and not written anywhere yet

# These take as long as the disk does: they are not sent again while the connection lives.
PATIENT = frozenset({"save", "load"})
# What changes something, and so must not be done twice when it is sent again.
ONCE = PATIENT | {
    *("push", "announce", "accumulate", "dense_push"),
    *("set_lr", "set_committed", "capture", "conclude", "advance"),
}

# Rows on the wire: what a client may ask for, and the name in frames.
PRECISIONS = {"fp32": "f4", "fp16": "f2", "bf16": "bf16"}
# Their gradients: a share of a batch's mean is often below 6e-8, which is 0 in fp16.
GRADIENT_PRECISIONS = {"fp32": "f4", "fp16": "bf16", "bf16": "bf16"}
VALUE_BYTES = {"f4": 4, "f2": 2, "bf16": 2}
NO_SEGMENT = "NoSegment"


@dataclass(frozen=True)
class TableSpec:
    """A table as its servers make it; the memory is a shard's, ``path`` a folder of the server."""

    dim: int
    rule: str = "rowwise_adagrad"
    lr: float | None = None
    options: Mapping[str, float] = field(default_factory=dict)
    initial: str = "uniform"
    scale: float = 0.01
    seed: int = 0
    memory_bytes: int | None = None
    path: str | None = None
    admission: int = 0
    evict_after: int = 0
    max_rows: int = 0
    staleness: int = 0
    threads: int = 0

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> TableSpec:
        return cls(**_checked(cls, fields))


@dataclass(frozen=True)
class DenseSpec:
    """A dense tensor; its values travel beside it."""

    rule: str = "adam"
    lr: float | None = None
    options: Mapping[str, float] = field(default_factory=dict)

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> DenseSpec:
        return cls(**_checked(cls, fields))


class SegmentGoneError(HeterPSError):
    """A message names a segment that the server does not have: send it behind the header."""


def error_fields(error: Exception) -> dict[str, Any]:
    """An error as one line; what is not ours is named by its type."""
    if isinstance(error, SegmentGoneError):
        return {"error": NO_SEGMENT, "problem": _line(error)}
    if isinstance(error, InputError):
        path = _one_line(error.path)
        return {"error": "InputError", "path": path, "problem": _one_line(error.problem)}
    if isinstance(error, SnapshotError):
        problem = _one_line(error.problem)
        return {"error": "SnapshotError", "path": _one_line(str(error.path)), "problem": problem}
    if isinstance(error, NotCommittedError):
        about = {"batch": error.batch, "committed": error.committed}
        return {"error": "NotCommittedError", "problem": _line(error), **about}
    if isinstance(error, HeterPSError):
        return {"error": type(error).__name__, "problem": _line(error)}
    return {"error": "ServerError", "problem": f"{type(error).__name__}: {_line(error)}"}


def as_error(fields: Mapping[str, Any], where: str, waited_s: float) -> HeterPSError:
    """The error of a server at a client; ``where`` names the shard."""
    kind, problem = fields.get("error"), str(fields.get("problem"))
    path = str(fields.get("path", ""))
    if kind == "InputError":
        return InputError(path, problem)
    if kind == "SnapshotError":
        return SnapshotError(path, f"{problem} ({where})")
    if kind == "StoreError":
        return StoreError(f"{where}: {problem}")
    match fields:
        case {"error": "NotCommittedError", "batch": int(batch), "committed": int(committed)}:
            return NotCommittedError(batch, committed, round(waited_s, 1))
    return ServerError(f"{where}: {problem}")


def _checked(cls: type[TableSpec | DenseSpec], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, all known; every value is looked at by what is made of them."""
    known = cls.__dataclass_fields__
    for name in fields:
        if name not in known:
            raise UnknownNameError("spec", "field", name, known)
    if cls is TableSpec and "dim" not in fields:
        raise InputError("spec", "a table needs its dim")
    options = fields.get("options", {})
    if not isinstance(options, Mapping):
        raise InputError("spec", f"options are named values, not {options!r:.50}")
    return {**fields, "options": dict(options)}


def _line(error: Exception) -> str:
    return _one_line(str(error))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
