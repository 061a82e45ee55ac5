"""Small runs of every model of the zoo in real processes, and what one process makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn
from torch.optim import Optimizer

from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.events import read_events
from heterps.job.spec import Job
from heterps.models.batch import Batch
from heterps.models.local_rows import LocalTable
from heterps.ps.rules import make_rule
from heterps.ps.sharding import BUCKETS
from heterps.ps.snapshots import open_snapshot
from heterps.runtime.building import DTYPES, build_model, table_seed, table_spec
from heterps.runtime.engines import MakeEngine
from heterps.runtime.layout import micro_batches_of
from heterps.runtime.optimizers import make_optimizer
from heterps.runtime.prepare import Setup, prepare
from heterps.runtime.run_folder import EVENTS, RunFolder
from heterps.runtime.saved_model import TABLES, load_dense
from heterps.runtime.training import TrainResult, train_run
from heterps.testing.forking import ForkEngine
from heterps.testing.reference_loop import reference_loop

TYPE = "cpu"
_ROWS = 800
_CLICKS = {"slots": 3, "dense": 2, "ids": 60}


@dataclass(frozen=True)
class SmallModel:
    """``kind`` of made-up data, the arguments of the model, and how many layers it then has."""

    kind: str
    args: Mapping[str, Any]
    layers: int


SMALL: dict[str, SmallModel] = {
    "ctrdnn": SmallModel("clicks", {"dim": 3, "hidden": [8, 6], "dropout": 0.2}, 12),
    "matchnet": SmallModel("match", {"dim": 3, "hidden": [6, 5]}, 16),
    "nce": SmallModel("next", {"vocabulary": 50, "dim": 4, "hidden": [6], "negatives": 7}, 7),
    "two_emb": SmallModel("clicks", {"wide_dim": 5, "narrow_dim": 2, "hidden": [6, 4]}, 10),
}


@dataclass(frozen=True)
class SavedRows:
    """All rows of a table in ascending order of ids, with the state of their rule."""

    ids: Tensor
    values: Tensor
    state: Tensor


@dataclass(frozen=True)
class Outcome:
    """What training came to: the loss of each batch, weights by name, rows by table."""

    losses: list[float]
    weights: Mapping[str, Tensor]
    rows: Mapping[str, SavedRows]

    def equals(self, other: Outcome) -> bool:
        """To the bit."""
        return self.losses == other.losses and all(
            torch.equal(one, another)
            for one, another in zip(self._tensors(), other._tensors(), strict=True)
        )

    def distance(self, other: Outcome) -> float:
        """The largest ‖Δw‖/‖w‖ of a layer's weights or a table's rows."""
        mine, theirs = self._by_layer(), other._by_layer()
        assert mine.keys() == theirs.keys()
        return max(_distance(mine[name], theirs[name]) for name in mine)

    def _tensors(self) -> Iterator[Tensor]:
        for name in sorted(self.weights):
            yield self.weights[name]
        for name in sorted(self.rows):
            yield from (self.rows[name].ids, self.rows[name].values, self.rows[name].state)

    def _by_layer(self) -> dict[str, Tensor]:
        layers: dict[str, list[Tensor]] = {}
        for name in sorted(self.weights):
            layers.setdefault(name.rpartition(".")[0], []).append(self.weights[name].reshape(-1))
        joined = {f"layer {name}": torch.cat(parts) for name, parts in layers.items()}
        return joined | {f"table {name}": rows.values for name, rows in self.rows.items()}


def _distance(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one.double() - other.double()).norm() / other.double().norm())


def make_data(folder: Path, kind: str, rows: int = _ROWS) -> Path:
    """A small data set of a kind, once; its folder."""
    out = folder / f"{kind}-{rows}"
    synthesise(SynthSpec(rows, 300, files=2, kind=kind, **_CLICKS), out)
    return out


def document(folder: Path, model: str, *, rows: int = _ROWS) -> dict[str, Any]:
    """A job as a document: some 25 batches of 32 samples an epoch, in 4 micro-batches each."""
    own = SMALL[model]
    data = make_data(folder, own.kind, rows)
    section = yaml.safe_load((data / SECTION).read_text())["data"]
    for part in ("train", "validation"):
        section[part] = str(data / section[part])
    del section["validation"]  # a test that validates says so
    return {
        "model": {"zoo": model, "args": dict(own.args)},
        "data": section,
        "workload": {"batch_size": 32, "micro_batches": 4, "epochs": 1},
        "cluster": {"types": [{"name": TYPE, "price_per_hour": 0.04, "limit": 16}]},
        "optimizer": {"name": "sgd", "lr": 0.02},
        "plan": stages(own.layers, (), (1,)),
        "seed": 5,
    }


def small_job(folder: Path, model: str, replicas: Sequence[int] = (1,), /, **changes: Any) -> Job:
    """A job with as many stages as ``replicas`` names, cut evenly. ``changes`` by field, with two
    underscores for a point: ``workload__epochs=2``."""
    job = document(folder, model)
    layers = SMALL[model].layers
    cuts = [layers * stage // len(replicas) for stage in range(1, len(replicas))]
    job["plan"] = stages(layers, cuts, replicas)
    for path, value in changes.items():
        *sections, name = path.split("__")
        at = job
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value
    return Job.parse(job).in_folder(folder)


def stages(layers: int, cuts: Sequence[int], replicas: Sequence[int]) -> dict[str, Any]:
    """A plan as a document: ``cuts`` are the first layers of stages."""
    edges = [0, *cuts, layers]
    return {
        "stages": [
            {"first": first, "last": end - 1, "type": TYPE, "units": units}
            for (first, end), units in zip(pairwise(edges), replicas, strict=True)
        ]
    }


def epochs_for(job: Job, steps: int) -> float:
    """The value of ``workload.epochs`` that makes a run of so many batches."""
    return (steps - 0.5) / prepare(job).layout.train.batches_per_epoch


def run(job: Job, out: Path, engine: MakeEngine | None = ForkEngine) -> tuple[TrainResult, Outcome]:
    """Trains in processes: forked ones, unless another engine is named; None is the job's."""
    setup = prepare(job)
    with RunFolder.create(out, setup.job, setup.plan_document()) as folder:
        result = train_run(setup, folder, make_engine=engine)
    return result, outcome(folder)


def reference(
    job: Job, start: Outcome | None = None, batches: Iterator[list[Batch]] | None = None
) -> Outcome:
    """The same by a plain loop in this process, over the same micro-batches, or over ``batches``;
    with ``start`` from these weights and rows on."""
    if batches is None:
        batches = batches_of(prepare(job))
    chain = build_model(job)
    tables = {name: _Served.of(job, name, dim) for name, dim in chain.tables.items()}
    if start is not None:
        chain.load_state_dict(dict(start.weights))
        for name, saved in start.rows.items():
            tables[name].take(saved)

    def make(weights: list[nn.Parameter]) -> Optimizer:
        return make_optimizer(job.optimizer, weights)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        losses = reference_loop(chain, batches, tables, make, seed=job.seed)
    finally:
        torch.set_num_threads(threads)
    rows = {name: table.saved() for name, table in tables.items()}
    return Outcome(losses, chain.state_dict(), rows)


def batches_of(setup: Setup) -> Iterator[list[Batch]]:
    """The micro-batches of each batch of a run, as its workers read them."""
    job = setup.job
    assert job.data is not None
    data = Dataset.open(job.data, "train", job.folder)
    return batches_of_plan(job, setup.layout.train, data, setup.layout.batches)


def batches_of_plan(
    job: Job, plan: LanePlan, data: Dataset, count: int | None = None
) -> Iterator[list[Batch]]:
    """The micro-batches of so many batches of a plan, by default of an epoch."""
    reader = LaneReader(data, Lanes(plan, data.sizes, job.seed), range(plan.lanes))
    batches = plan.batches_per_epoch if count is None else count
    for batch in range(plan.first_batch, plan.first_batch + batches):
        yield [_as(job, reader.micro_batch(j)) for j in micro_batches_of(plan, batch)]


def outcome(folder: RunFolder) -> Outcome:
    """What a run has left in its folder."""
    return Outcome(
        losses_of(folder.path), load_dense(folder.model), saved_rows(folder.model / TABLES)
    )


def losses_of(path: Path) -> list[float]:
    """Of each batch of a run, as its events tell. What was trained again, after processes had
    started again, counts as it then was."""
    losses: list[float] = []
    for event in read_events(path / EVENTS):
        if event["kind"] == "ready":
            del losses[event["step"] :]
        if event["kind"] == "progress":
            assert event["first"] == len(losses), "losses are missing, or there twice"
            losses += event["losses"]
    return losses


def saved_rows(path: Path) -> dict[str, SavedRows]:
    """Every table of a snapshot."""
    snapshot = open_snapshot(path)
    found = {}
    for name, parts in snapshot.tables.items():
        store = _Collected()
        snapshot.load(name, parts[0]["settings"], store, range(BUCKETS))
        found[name] = store.rows()
    return found


class _Collected:
    """Takes the rows of a snapshot in."""

    def __init__(self) -> None:
        self.step = self.committed = 0
        self._blocks: list[tuple[Any, ...]] = []

    def restore(self, *columns: Any) -> None:
        self._blocks.append(columns)

    def restore_pending(self, ids: Any, counts: Any, last_seen: Any) -> None:
        raise AssertionError("no table of a small run makes ids wait")

    def remove(self, ids: Any) -> None:
        raise AssertionError("a model is saved whole")

    def rows(self) -> SavedRows:
        ids, values, state, *_ = (np.concatenate(c) for c in zip(*self._blocks, strict=True))
        order = np.argsort(ids)
        return SavedRows(*(torch.from_numpy(c[order].copy()) for c in (ids, values, state)))


@dataclass
class _Served(LocalTable):
    """Rows as a server keeps them, in float32, and gives them to a model of any precision."""

    to: torch.dtype = torch.float32

    @classmethod
    def of(cls, job: Job, name: str, dim: int) -> _Served:
        spec = table_spec(job, name, dim)
        lr = make_rule(spec.rule, spec.lr).lr
        initial: Any = spec.initial
        seed = table_seed(job.seed, name)
        return cls(dim, spec.rule, lr, initial, spec.scale, seed, to=DTYPES[job.dtype])

    def pull(self, ids: Tensor) -> Tensor:
        return super().pull(ids).to(self.to)

    def take(self, saved: SavedRows) -> None:
        ids = saved.ids.tolist()
        self.rows = dict(zip(ids, saved.values.numpy(), strict=True))
        self.state = dict(zip(ids, saved.state.numpy(), strict=True))

    def saved(self) -> SavedRows:
        ids = sorted(self.rows)
        values = np.array([self.rows[key] for key in ids])
        state = np.array([self.state[key] for key in ids])
        return SavedRows(torch.tensor(ids), torch.from_numpy(values), torch.from_numpy(state))


def _as(job: Job, batch: Batch) -> Batch:
    dtype = DTYPES[job.dtype]
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in batch.items()}
