"""Data sets made up: Parquet files, what the true model reaches on them, and a section for jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from heterps.data.ceiling import auc, logloss
from heterps.data.click_model import BLOCK_ROWS, ClickModel, Samples
from heterps.data.session_model import SessionModel
from heterps.data.writing import Progress, nothing, parquet_writer, write_text
from heterps.errors import InputError, UnknownNameError

KINDS = ("clicks", "match", "next")
SUMMARY, SECTION = "synthetic.json", "data.yaml"
_VALIDATION = 1 << 40  # the first block of the validation part
_VERSION = 1


@dataclass(frozen=True)
class SynthSpec:
    """What to make up; ``slots``, ``dense`` and ``missing`` are for clicks only."""

    rows: int
    validation_rows: int
    files: int = 1
    kind: str = "clicks"
    seed: int = 0
    slots: int = 26
    ids: int = 1_000_000
    dense: int = 13
    missing: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind", "kind", self.kind, KINDS)
        for name, least in (("rows", 1), ("validation_rows", 1), ("files", 1), ("ids", 2)):
            if getattr(self, name) < least:
                raise InputError(name, f"expected {least} or more, got {getattr(self, name)}")
        if self.files > self.rows:
            raise InputError("files", f"{self.files} is more than there are rows ({self.rows})")
        if not 0 <= self.missing < 1:
            raise InputError("missing", f"expected a share in [0, 1), got {self.missing:g}")
        if self.slots < 0 or self.dense < 0 or not self.slots + self.dense:
            raise InputError("slots", "expected a slot or a dense column at least")

    def model(self) -> ClickModel | SessionModel:
        if self.kind == "clicks":
            return ClickModel(self.seed, self.slots, self.ids, self.dense, self.missing)
        return SessionModel(self.seed, self.ids, next_item=self.kind == "next")


def synthesise(
    spec: SynthSpec, out: Path, progress: Progress = nothing, *, force: bool = False
) -> dict[str, Any]:
    """Writes ``train/`` and ``validation/`` below ``out``, a data section and, last, the summary,
    which it returns. A folder that holds the same data set already is left as it is; one with
    another needs ``force``. Raises InputError.
    """
    settings = {"version": _VERSION, **asdict(spec)}
    if not force:
        before = _summary_of(out)
        if before and before["settings"] == settings:
            return before | {"reused": True}
        _refuse_other_data(out)
    _remove(out)
    total = spec.rows + spec.validation_rows
    model = spec.model()
    train = _write_part(_Part(model, 0, spec.rows), out / "train", spec.files, progress, 0, total)
    held = _Part(model, _VALIDATION, spec.validation_rows)
    validation = _write_part(held, out / "validation", 1, progress, spec.rows, total)
    summary = {
        "settings": settings,
        "train": {"rows": spec.rows, "files": spec.files, "positive_share": train.labels.mean()},
        "validation": {
            "rows": spec.validation_rows,
            "files": 1,
            "positive_share": validation.labels.mean(),
        },
        "ceiling": _ceiling(spec, validation),
    }
    write_text(out / SECTION, _section(model))
    write_text(out / SUMMARY, json.dumps(summary, indent=2) + "\n")
    return summary | {"reused": False}


@dataclass(frozen=True)
class _Outcome:
    labels: np.ndarray[Any, Any]
    chance: np.ndarray[Any, Any]


class _Part:
    """Rows by their number, whatever the files they go to."""

    def __init__(self, model: ClickModel | SessionModel, first_block: int, rows: int) -> None:
        self.rows = rows
        self._first = first_block
        self._block = lru_cache(maxsize=1)(model.block)

    def pieces(self, start: int, stop: int) -> Iterator[Samples]:
        """Rows ``start`` up to ``stop``, cut where blocks end."""
        while start < stop:
            number, within = divmod(start, BLOCK_ROWS)
            end = min(within + stop - start, BLOCK_ROWS)
            yield self._block(self._first + number).slice(within, end)
            start += end - within

    def cuts(self, files: int) -> list[int]:
        """Where files begin and end: between blocks, if there are enough of them."""
        unit = BLOCK_ROWS if self.rows >= files * BLOCK_ROWS else 1
        inner = [self.rows * k // files // unit * unit for k in range(files)]
        return [*inner, self.rows]


def _write_part(
    part: _Part, folder: Path, files: int, progress: Progress, done: int, total: int
) -> _Outcome:
    labels, chances = [], []
    cuts = part.cuts(files)
    schema = next(part.pieces(0, 1)).table.schema
    for number, (start, stop) in enumerate(pairwise(cuts)):
        with parquet_writer(folder / f"part-{number:05d}.parquet", schema) as writer:
            for piece in part.pieces(start, stop):
                writer.write_table(piece.table, row_group_size=BLOCK_ROWS)
                labels.append(piece.table["label"].to_numpy())
                chances.append(piece.chance)
                done += len(piece.chance)
                progress(done, total)
    return _Outcome(np.concatenate(labels), np.concatenate(chances))


def _ceiling(spec: SynthSpec, validation: _Outcome) -> dict[str, float | None]:
    """What the true model reaches on the validation part; no AUC if all its labels are equal."""
    if spec.kind == "next":
        return {"nats_per_item": float(-np.log(validation.chance).mean())}
    area = auc(validation.labels, validation.chance)
    return {
        "auc": None if np.isnan(area) else area,
        "logloss": logloss(validation.labels, validation.chance),
    }


def _section(model: ClickModel | SessionModel) -> str:
    section = {"train": "train/*.parquet", "validation": "validation/*.parquet", **model.section()}
    text: str = yaml.safe_dump({"data": section}, sort_keys=False, default_flow_style=None)
    return f"# Paste this into a job file beside the folders it names.\n{text}"


def _summary_of(out: Path) -> dict[str, Any] | None:
    try:
        summary = json.loads((out / SUMMARY).read_text())
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) and "settings" in summary else None


def _written(out: Path) -> list[Path]:
    """Only what an earlier call can have written."""
    parts = [path for part in ("train", "validation") for path in (out / part).glob("*.parquet")]
    return [path for path in (out / SUMMARY, out / SECTION) if path.exists()] + parts


def _refuse_other_data(out: Path) -> None:
    if _written(out):
        raise InputError(str(out), "holds another data set; give another folder, or --force")


def _remove(out: Path) -> None:
    """The summary first: without it a folder counts as unfinished."""
    try:
        for path in _written(out):
            path.unlink()
    except OSError as error:
        raise InputError(str(out), f"cannot be overwritten ({error.strerror})") from None
