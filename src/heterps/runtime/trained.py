"""A run that has ended, and its model as an ordinary torch module."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import torch
from torch import Tensor

from heterps.data.batch import Batch
from heterps.data.schema import SlotKind
from heterps.data.writing import Progress, nothing
from heterps.errors import InputError, ModelError, SnapshotError, UnknownNameError
from heterps.events import read_events
from heterps.job.load import read_document
from heterps.job.spec import Job
from heterps.models.predictor import Predictor
from heterps.ps.initial import INITIALIZERS
from heterps.ps.rules import RULES
from heterps.ps.snapshots import Snapshot, open_snapshot
from heterps.ps.table import SparseTable
from heterps.runtime.building import DTYPES, build_model
from heterps.runtime.evaluation import check_name, evaluate, in_order, open_data, predict
from heterps.runtime.metrics import Counts, task_of
from heterps.runtime.run_folder import BEST, EVENTS, METRICS, RunFolder
from heterps.runtime.saved_model import MANIFEST, TABLES, load_dense, read_manifest
from heterps.runtime.slots import kinds_in
from heterps.runtime.snapshot import Snapshots

Which = Literal["model", "best"]


class SnapshotRows:
    """Rows of a snapshot of the parameter servers, in this process: a source that only gives. An id
    that was never trained has its first row. ``memory_bytes`` bounds what a table may take; the
    rest of it goes to a scratch folder.
    """

    def __init__(
        self,
        path: Path,
        dtype: torch.dtype = torch.float32,
        memory_bytes: Mapping[str, int] | None = None,
    ) -> None:
        snapshot = open_snapshot(path)
        self._dtype = dtype
        bounds = memory_bytes or {}
        self._tables = {}
        for name in snapshot.tables:
            scratch = self._scratch() if name in bounds else None
            table = _table(snapshot, name, bounds.get(name), scratch)
            table.load(path, name=name)
            self._tables[name] = table

    def pull(self, table: str, ids: Tensor) -> Tensor:
        if table not in self._tables:
            raise UnknownNameError("table", "table of the run", table, self._tables)
        return torch.from_numpy(self._tables[table].pull(ids.cpu().numpy())).to(self._dtype)

    def __len__(self) -> int:
        """Rows of all tables."""
        return sum(len(table) for table in self._tables.values())

    def _scratch(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="heterps-rows-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder


@dataclass(frozen=True)
class TrainedRun:
    """What ``load_run`` found in a run folder. ``plan`` is the JSON form of the plan."""

    folder: RunFolder
    job: Job

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def plan(self) -> dict[str, Any]:
        return self.folder.plan

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The result of the run; empty if it has none yet."""
        path = self.path / METRICS
        return read_document(path) if path.exists() else {}

    @cached_property
    def task(self) -> str | None:
        """What the predictions of the model mean: ``binary``, ``sampled`` or something else."""
        return task_of(build_model(self.job))

    def about(self, which: Which = "model") -> dict[str, Any]:
        """What was noted when a model was saved, such as its batch. Raises SnapshotError."""
        folder = self.path / which
        if not (folder / MANIFEST).exists():
            raise SnapshotError(folder, f"holds no whole model: {self._why_not(which)}")
        return read_manifest(folder)

    def _why_not(self, which: Which) -> str:
        if which == "best":
            return "no validation of the run has found a best one"
        kinds = {"started": "", "resumed": "", "failed": "has failed", "interrupted": "was stopped"}
        told = [event for event in read_events(self.path / EVENTS) if event.get("kind") in kinds]
        how = kinds[told[-1]["kind"]] if told else ""
        why = f"the run {how} at step {told[-1].get('step')}" if how else "the run has not ended"
        with suppress(InputError):  # a store that is away
            if Snapshots.of(self.path, self.job).last_step is not None:
                why += f"; `heterps resume {quote(str(self.path))}` goes on"
        if (self.path / BEST / MANIFEST).exists():
            why += "; --best takes the best model so far"
        return why

    def predictor(self, which: Which = "model") -> Predictor:
        """The model at the end of the run, or the one that did ``best`` in validation: a torch
        module that maps a batch to predictions. Raises SnapshotError for a model that is not there,
        or not whole.
        """
        folder = self.path / which
        self.about(which)
        chain = build_model(self.job)
        _take_weights(chain, load_dense(folder), folder)
        dtype = DTYPES[self.job.dtype]
        entries = self.job.tables_of(chain.tables)
        bounds = {
            name: int(entry.memory_gib * 2**30)
            for name, entry in entries.items()
            if entry.memory_gib is not None
        }
        return Predictor(chain, SnapshotRows(folder / TABLES, dtype, bounds), self.job.seed)

    def evaluate(
        self, data: Sequence[str] = (), which: Which = "model", progress: Progress = nothing
    ) -> Counts:
        """How well the model does on the validation data of the job, or on other files; ``value``
        of the result gives a metric by its name. Raises InputError.
        """
        like = self._trained_on(which)
        return evaluate(self.predictor(which), self.job, self.task, data, progress, like)

    def predict(
        self,
        data: Sequence[str],
        out: Path | str,
        which: Which = "model",
        progress: Progress = nothing,
    ) -> int:
        """Write a prediction for every row of files to a .parquet or .csv file, or a URL; how many.
        The data need neither label nor weight. Raises InputError.
        """
        check_name(out)
        like = self._trained_on(which)
        return predict(self.predictor(which), self.job, data, out, progress, like)

    def batches(self, data: Sequence[str], which: Which = "model") -> Iterator[Batch]:
        """The rows of files, in their order, as the model wants them, without labels."""
        return in_order(open_data(self.job, data, labels=False, like=self._trained_on(which)))

    def _trained_on(self, which: Which) -> dict[str, SlotKind]:
        """What slots held; empty where nothing says so."""
        there = (self.path / which / MANIFEST).exists()
        return kinds_in(self.about(which), "the run") if there else {}


def load_run(path: Path | str) -> TrainedRun:
    """The run in a folder. Raises InputError for what is no run folder."""
    folder = RunFolder.open(path)
    return TrainedRun(folder, folder.job)


def _table(
    snapshot: Snapshot, name: str, memory_bytes: int | None, path: Path | None
) -> SparseTable:
    """Empty, with the settings that the snapshot names."""
    settings = snapshot.tables[name][0]["settings"]
    return SparseTable(
        settings["dim"],
        RULES[settings["rule"]](lr=settings["lr"], **settings["options"]),
        seed=settings["seed"],
        initial=INITIALIZERS[settings["initial"]](settings["scale"]),
        memory_bytes=memory_bytes,
        path=path,
    )


def _take_weights(chain: torch.nn.Module, state: Mapping[str, Tensor], folder: Path) -> None:
    try:
        chain.load_state_dict(dict(state))
    except RuntimeError as error:
        said = " ".join(str(error).split())
        problem = f"does not fit the model of the job: {said[:200]}"
        raise ModelError(str(folder), problem) from None
