"""Run folders with a model that was trained a little, made without any process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.schema import SlotKind
from heterps.data.synthetic import SynthSpec, synthesise
from heterps.job.spec import Job
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.rows import Asked, rows_of
from heterps.ps.initial import INITIALIZERS
from heterps.ps.snapshots import Partial
from heterps.ps.table import SparseTable
from heterps.runtime.building import build_model, table_spec
from heterps.runtime.run_folder import MODEL, RunFolder
from heterps.runtime.saved_model import TABLES, save_dense
from heterps.runtime.slots import slots_document

ROWS, HELD = 2000, 500
_MODELS: dict[str, dict[str, Any]] = {
    "ctrdnn": {"dim": 4, "hidden": [8]},
    "nce": {"vocabulary": 50, "dim": 4, "candidates": 20},
}


def make_run(folder: Path, zoo: str = "ctrdnn", steps: int = 20, **changes: Any) -> RunFolder:
    """``folder/run`` beside the data that it is about in ``folder/data``."""
    kind = "next" if zoo == "nce" else "clicks"
    spec = SynthSpec(ROWS, HELD, kind=kind, slots=3, dense=2, ids=200)
    synthesise(spec, folder / "data")
    section = yaml.safe_load((folder / "data" / "data.yaml").read_text())["data"]
    document = {
        "model": {"zoo": zoo, "args": _MODELS[zoo]},
        "data": {**section, "train": "data/train", "validation": "data/validation"},
        "cluster": {"types": [{"name": "cpu", "price_per_hour": 0.04, "limit": 4}]},
        "workload": {"batch_size": 100, "epochs": 1},
        **changes,
    }
    job = Job.parse(document).in_folder(folder)
    with RunFolder.create(folder / "run", job, {"method": "given", "stages": []}) as run:
        chain, tables, kinds = _trained(job, steps)
        with run.saving(MODEL, {"step": steps, **slots_document(kinds)}) as saved:
            save_dense(saved, chain.state_dict())
            _save_tables(saved / TABLES, tables)
    return run


def _trained(job: Job, steps: int) -> tuple[Chain, dict[str, SparseTable], Mapping[str, SlotKind]]:
    """By plain steps down the gradient, and what its slots hold."""
    chain = build_model(job)
    tables = {name: _table(job, name, dim) for name, dim in chain.tables.items()}
    assert job.data is not None
    data = Dataset.open(job.data, "train", job.folder)
    plan = LanePlan(data.samples, 1, job.workload.batch_size)
    reader = LaneReader(data, Lanes(plan, data.sizes, job.seed), [0])
    weight = next(chain.parameters())
    for step in range(steps):
        batch = {
            name: tensor.to(weight.dtype) if tensor.is_floating_point() else tensor
            for name, tensor in reader.micro_batch(step).items()
        }
        context = Context(job.seed, step)
        asked = chain.ask(batch, _Rows(tables, weight.dtype), context)
        chain(batch, rows_of(asked), context)["loss"].backward()
        _step(chain, tables, asked)
    return chain, tables, data.kinds


class _Rows:
    def __init__(self, tables: dict[str, SparseTable], dtype: torch.dtype) -> None:
        self._tables, self._dtype = tables, dtype

    def pull(self, table: str, ids: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self._tables[table].pull(ids.numpy())).to(self._dtype)


def _step(chain: Chain, tables: dict[str, SparseTable], asked: dict[str, Asked]) -> None:
    for weight in chain.parameters():
        if weight.grad is not None:
            weight.data -= 0.1 * weight.grad
            weight.grad = None
    for name, entry in asked.items():
        grad = entry.rows.values.grad
        assert grad is not None
        table = tables[chain.row_layers[name].table]
        table.push(entry.ids.numpy(), grad.numpy().astype(np.float32))


def _table(job: Job, name: str, dim: int) -> SparseTable:
    spec = table_spec(job, name, dim)
    initial = INITIALIZERS[spec.initial](spec.scale)
    return SparseTable(dim, spec.rule, lr=spec.lr, seed=spec.seed, initial=initial)


def _save_tables(path: Path, tables: dict[str, SparseTable]) -> None:
    with Partial(path) as partial:
        parts = [table.save_part(partial.folder, name) for name, table in tables.items()]
        identity = partial.publish(parts)
        for table in tables.values():
            table.conclude_save(identity)
