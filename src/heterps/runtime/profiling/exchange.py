"""What moves beside the computing: rows from real servers, activations over a real connection,
samples from the real data. In this process, and without the emulation of a type."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from heterps.data.dataset import Dataset
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.models.context import Context
from heterps.models.rows import distinct_of
from heterps.ps.client import Client
from heterps.ps.processes import start_servers
from heterps.ps.protocol import VALUE_BYTES
from heterps.runtime.building import table_spec
from heterps.runtime.channel import Mesh
from heterps.runtime.prepare import Setup
from heterps.runtime.profiling.repeat import repeat
from heterps.wire.keys import create_key

Batch = dict[str, Tensor]
_BATCHES = 4


@dataclass(frozen=True)
class Traffic:
    """Bytes of a micro-batch that go one way over the link of a unit, and the other way, as they
    travel: numbers may be narrowed."""

    there_bytes: float
    back_bytes: float

    @property
    def moved_bytes(self) -> float:
        return self.there_bytes + self.back_bytes


@dataclass(frozen=True)
class RowTimes:
    """Of one layer and a micro-batch: ``seconds`` to pull its rows and to give their gradients, by
    how many micro-batches did so at once (for all of them), and what that moves."""

    seconds: Mapping[int, float]
    traffic: Traffic


@dataclass(frozen=True)
class CutTimes:
    """Of the cut before a layer and a micro-batch, for one of both sides: seconds of its thread,
    and the bytes of activations and their gradients."""

    send_s: float
    receive_s: float
    traffic: Traffic


def read_batches(setup: Setup, count: int = _BATCHES) -> tuple[list[Batch], float]:
    """Some micro-batches of the job, and the seconds that reading one takes: its own, and its part
    of decoding a row group, which comes with the first one of a lane."""
    job, plan = setup.job, setup.layout.train
    assert job.data is not None
    data = Dataset.open(job.data, "train", job.folder, binary=setup.task == "binary")
    lanes = Lanes(plan, data.sizes, job.seed)
    reader = LaneReader(data, lanes, [0])
    found, seconds = [], []
    for j in range(0, min(plan.per_epoch, count * plan.lanes), plan.lanes):
        began = time.perf_counter()
        found.append(reader.micro_batch(j))
        seconds.append(time.perf_counter() - began)
    own = statistics.median(seconds[1:] or seconds)
    decoded = sum(lanes.sizes[group] for group, _, _ in lanes.pieces(plan.span_of(0)))
    return found, own + max(0.0, seconds[0] - own) * plan.micro_batch_size / decoded


def time_rows(
    setup: Setup, batches: Sequence[Batch], at_once: Sequence[int]
) -> dict[str, RowTimes]:
    """Of every layer that has rows."""
    if not setup.chain.row_layers:
        return {}
    with _served(setup) as client:
        asked = [_distinct(setup, batch, at) for at, batch in enumerate(batches)]
        found: dict[str, RowTimes] = {}
        for number, layer in enumerate(setup.chain.row_layers):
            ids = [each[layer] for each in asked]
            exchange = _Exchange(setup, client, layer, number, ids)
            seconds = {count: _quickly(partial(exchange.once, count)) for count in at_once}
            dim = setup.chain.row_layers[layer].dim
            named = float(np.mean([each.nbytes for each in ids]))
            width = VALUE_BYTES[client.dtype]
            values = float(np.mean([width * dim * len(each) for each in ids]))
            found[layer] = RowTimes(seconds, Traffic(2 * named + values, values))
    return found


def _quickly(measure: Callable[[], Sequence[float]]) -> float:
    """On a clock on the wall, where others can only make it longer."""
    return repeat(measure, most_s=1.0, quickest=0.1)[0][0]


class _Exchange:
    """Pulls and gradients of one layer, as its lookups do them."""

    def __init__(
        self, setup: Setup, client: Client, layer: str, number: int, ids: Sequence[np.ndarray]
    ) -> None:
        own = setup.chain.row_layers[layer]
        # Of its own: a batch of a table is whole when all its layers have given their gradients.
        self._table = client.create_table(
            f"table-{number}", table_spec(setup.job, own.table, own.dim)
        )
        self._ids = ids
        self._grads = [np.full((len(each), own.dim), 1e-3, np.float32) for each in ids]
        self._batch = 0

    def once(self, at_once: int) -> list[float]:
        numbers = [number % len(self._ids) for number in range(at_once)]
        began = time.perf_counter()
        pulls = [self._table.pull_async(self._ids[n], None, distinct=True) for n in numbers]
        for pull in pulls:
            pull.result()
        given = [
            self._table.accumulate_async(
                self._batch, (at, 0), self._ids[n], self._grads[n], parts=at_once, distinct=True
            )
            for at, n in enumerate(numbers)
        ]
        for each in given:
            each.result()
        self._batch += 1
        return [time.perf_counter() - began]


@contextmanager
def _served(setup: Setup) -> Iterator[Client]:
    own = setup.job.servers
    with tempfile.TemporaryDirectory(prefix="heterps-") as path:
        folder, key = Path(path), create_key(Path(path))
        encrypt = setup.job.security.encrypt
        with (
            start_servers(folder, own.count, encrypt=encrypt) as servers,
            Client(
                [server.address for server in servers],
                key,
                encrypt=encrypt,
                dtype=setup.job.wire.rows,
            ) as client,
        ):
            yield client


def _distinct(setup: Setup, batch: Batch, number: int) -> dict[str, np.ndarray]:
    ids = setup.chain.ids(batch, Context(setup.job.seed, number, True))
    return {layer: distinct_of(each)[0].numpy() for layer, each in ids.items()}


def time_cuts(setup: Setup, batch: Batch) -> list[CutTimes]:
    """Of the cut before each layer; of that before the first, which there is not, nothing."""
    at_cuts = _tensors_at_cuts(setup, batch)
    found = [CutTimes(0.0, 0.0, Traffic(0.0, 0.0))]
    with _connected(setup) as (before, after):
        for names, gradients in at_cuts[1:]:
            seconds, _ = repeat(partial(_there_and_back, before, after, names, gradients), 0.5)
            there = before.wire_bytes(names, _exact(names, gradients))
            traffic = Traffic(there, after.wire_bytes(gradients))
            found.append(CutTimes(seconds[0] / 2, seconds[1] / 2, traffic))
    return found


def _exact(names: Batch, gradients: Batch) -> list[str]:
    """As in a run: what carries no gradient keeps its precision."""
    return [name for name in names if name not in gradients]


def _there_and_back(before: Mesh, after: Mesh, names: Batch, gradients: Batch) -> list[float]:
    """Seconds of both threads together: sending, receiving."""
    marks = [time.thread_time()]
    before.send_forward(0, 0, names, exact=_exact(names, gradients))
    marks.append(time.thread_time())
    while not after.receive(1.0):
        pass
    marks.append(time.thread_time())
    after.send_back(0, 0, gradients)
    marks.append(time.thread_time())
    while not before.receive(1.0):
        pass
    marks.append(time.thread_time())
    sent, got, returned, had = (b - a for a, b in pairwise(marks))
    return [sent + returned, got + had]


@contextmanager
def _connected(setup: Setup) -> Iterator[tuple[Mesh, Mesh]]:
    encrypt, wire = setup.job.security.encrypt, setup.job.wire.activations
    with tempfile.TemporaryDirectory(prefix="heterps-") as path:
        key = create_key(Path(path))
        with (
            Mesh(key, 0, (0, 0), encrypt=encrypt, wire_dtype=wire) as before,
            Mesh(key, 0, (1, 0), encrypt=encrypt, wire_dtype=wire) as after,
        ):
            address = after.listen(f"ipc://{path}/1")
            met = threading.Event()
            answering = threading.Thread(target=_answer, args=(after, met))
            answering.start()
            try:
                before.connect({(1, 0): address})
            finally:
                met.set()
                answering.join()
            yield before, after


def _answer(mesh: Mesh, until: threading.Event) -> None:
    while not until.is_set():
        mesh.receive(0.02)


def _tensors_at_cuts(setup: Setup, batch: Batch) -> list[tuple[Batch, Batch]]:
    """Names that cross before each layer, and those of their gradients."""
    chain, traced = setup.chain, setup.trace
    context = Context(setup.job.seed, 0, True)
    named, found = dict(batch), []
    with torch.no_grad():
        for at, (name, _) in enumerate(chain.layers):
            crossing = {each: named[each] for each in traced.needed[at] if each in named}
            found.append((crossing, {each: named[each] for each in traced.gradients[at]}))
            part = chain.slice(at, at)
            rows = {
                layer: entry.rows
                for layer, entry in part.ask(named, _Plain(part.tables), context).items()
            }
            named |= chain.step(name, named, rows, context)
    return found


@dataclass(frozen=True)
class _Plain:
    dims: Mapping[str, int]

    def pull(self, table: str, ids: Tensor) -> Tensor:
        return torch.full((len(ids), self.dims[table]), 0.01)
