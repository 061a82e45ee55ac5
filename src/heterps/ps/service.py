"""What a server does for each verb, apart from sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from heterps.errors import InputError, NotCommittedError, UnknownNameError
from heterps.ps.dense import DenseTensor
from heterps.ps.initial import INITIALIZERS
from heterps.ps.protocol import DenseSpec, TableSpec
from heterps.ps.requests import Answer, Request
from heterps.ps.rules import RULES, Rule
from heterps.ps.scratch import Scratch
from heterps.ps.table import SparseTable
from heterps.wire.frames import as_buffer

Outcome = tuple[Request, Answer | Exception]


@dataclass
class Hosted:
    """A table, what it was made from, and the pulls that wait for one of its batches."""

    spec: TableSpec
    table: SparseTable
    waiting: list[Request] = field(default_factory=list)

    def ready(self, batch: int) -> bool:
        return self.table.committed >= batch - 1 - self.spec.staleness


class Service:
    """The tables and tensors of one shard. ``handle`` answers at once, or gives None for a pull
    that has to wait: ``ripe`` yields its answer later. For one thread.
    """

    def __init__(self, shard: int, shards: int, scratch: Scratch | None = None) -> None:
        self.shard = shard
        self.shards = shards
        self._scratch = scratch or Scratch(None)
        self.tables: dict[str, Hosted] = {}
        self.tensors: dict[str, DenseTensor] = {}
        self._tensor_specs: dict[str, DenseSpec] = {}
        self._verbs: dict[str, Callable[[Request], Answer | None]] = {
            "ping": lambda request: Answer(),
            "create": self._create,
            "pull": self._pull,
            "push": self._push,
            "announce": self._announce,
            "accumulate": self._accumulate,
            "prefetch": self._prefetch,
            "set_lr": self._set_lr,
            "set_committed": self._set_committed,
            "describe": self._describe,
            "dense_create": self._dense_create,
            "dense_pull": self._dense_pull,
            "dense_push": self._dense_push,
        }

    def handle(self, request: Request) -> Answer | None:
        """Raises whatever the work raises; then nothing has changed."""
        if request.verb not in self._verbs:
            raise UnknownNameError("verb", "verb", request.verb, self._verbs)
        return self._verbs[request.verb](request)

    def ripe(self, now: float) -> Iterator[Outcome]:
        """The waiting pulls that can be answered now, or are too late."""
        for hosted in self.tables.values():
            if not hosted.waiting:
                continue
            waiting, hosted.waiting = hosted.waiting, []
            for request in waiting:
                if hosted.ready(request.integer("batch")):
                    yield request, self._try_pull(hosted, request)
                elif now < request.expires:
                    hosted.waiting.append(request)
                else:
                    yield request, _too_late(hosted, request)

    def next_expiry(self) -> float | None:
        times = [request.expires for hosted in self.tables.values() for request in hosted.waiting]
        return min(times, default=None)

    def drop_waiting(self) -> None:
        for hosted in self.tables.values():
            hosted.waiting.clear()

    def close(self) -> None:
        for hosted in self.tables.values():
            hosted.table.close()

    def _create(self, request: Request) -> Answer:
        name, spec = request.text("table"), TableSpec.from_fields(request.mapping("spec"))
        _check_name(name)
        known = self.tables.get(name)
        if known is None:
            self.tables[name] = Hosted(spec, self.make_table(spec))
        elif known.spec != spec:
            raise InputError("spec", f"table '{name}' exists as {known.spec}")
        return Answer()

    def make_table(self, spec: TableSpec) -> SparseTable:
        """Raises InputError for a spec that makes no sense."""
        cold = None if spec.path is None else self._scratch.made(spec.path)
        return make_table(spec, cold)

    def _pull(self, request: Request) -> Answer | None:
        hosted = self._hosted(request)
        batch = request.integer("batch", None)
        if batch is not None and not hosted.ready(batch):
            request.ids()  # what is wrong with it is said now, not after the wait
            hosted.waiting.append(request)
            return None
        return self._rows(hosted, request)

    def _try_pull(self, hosted: Hosted, request: Request) -> Answer | Exception:
        try:
            return self._rows(hosted, request)
        except Exception as error:  # noqa: BLE001 - it becomes the client's answer
            return error

    def _rows(self, hosted: Hosted, request: Request) -> Answer:
        ids = request.ids()
        result = request.result((len(ids), hosted.spec.dim))
        hosted.table.pull(ids, out=result.rows)
        return result.finish()

    def _push(self, request: Request) -> Answer:
        hosted, ids = self._hosted(request), request.ids()
        grads = request.floats(1, "grads", (len(ids), hosted.spec.dim))
        hosted.table.push(ids, grads, request.rate())
        return Answer()

    def _announce(self, request: Request) -> Answer:
        table = self._hosted(request).table
        table.announce(request.integer("batch"), request.integer("parts"), request.rate())
        return Answer()

    def _accumulate(self, request: Request) -> Answer:
        hosted, ids = self._hosted(request), request.ids()
        grads = request.floats(1, "grads", (len(ids), hosted.spec.dim))
        part = (request.integer("micro_batch"), request.integer("layer"))
        batch, parts = request.integer("batch"), request.integer("parts", None)
        if parts is not None:
            hosted.table.announce(batch, parts, request.rate())
        taken = hosted.table.accumulate(batch, part, ids, grads)
        return Answer({"taken": bool(taken)})

    def _prefetch(self, request: Request) -> Answer:
        # The ids may lie in a segment that the client uses again after the answer.
        self._hosted(request).table.prefetch(request.ids().copy())
        return Answer()

    def _set_committed(self, request: Request) -> Answer:
        self._hosted(request).table.committed = request.integer("batch")
        return Answer()

    def _set_lr(self, request: Request) -> Answer:
        rate = request.rate()
        if rate is None:
            raise InputError("lr", "missing")
        self._hosted(request).table.lr = rate
        return Answer()

    def _describe(self, request: Request) -> Answer:
        hosted = self._hosted(request)
        table = hosted.table
        about = {"rows": len(table), "step": table.step, "committed": table.committed}
        return Answer({**about, "lr": table.lr, "spec": hosted.spec.as_fields()})

    def _dense_create(self, request: Request) -> Answer:
        name, spec = request.text("tensor"), DenseSpec.from_fields(request.mapping("spec"))
        _check_name(name)
        values = request.floats(0, "values")
        if name not in self.tensors:
            self.tensors[name] = DenseTensor(values, make_rule(spec))
            self._tensor_specs[name] = spec
        elif self._tensor_specs[name] != spec or self.tensors[name].shape != values.shape:
            raise InputError("spec", f"tensor '{name}' exists in another form")
        return Answer()

    def _dense_pull(self, request: Request) -> Answer:
        tensor = self._tensor(request)
        result = request.result(tensor.shape)
        tensor.pull(out=result.rows)
        return result.finish()

    def _dense_push(self, request: Request) -> Answer:
        tensor = self._tensor(request)
        tensor.push(request.floats(0, "grads", tensor.shape), request.rate())
        return Answer()

    def _hosted(self, request: Request) -> Hosted:
        name = request.text("table")
        if name not in self.tables:
            raise UnknownNameError("table", "table", name, self.tables)
        return self.tables[name]

    def _tensor(self, request: Request) -> DenseTensor:
        name = request.text("tensor")
        if name not in self.tensors:
            raise UnknownNameError("tensor", "tensor", name, self.tensors)
        return self.tensors[name]


def make_table(spec: TableSpec, cold: Path | None = None) -> SparseTable:
    """``cold`` is a folder for rows that do not fit. Raises InputError for a spec that makes no
    sense."""
    if spec.initial not in INITIALIZERS:
        raise UnknownNameError("initial", "initializer", spec.initial, INITIALIZERS)
    return SparseTable(
        spec.dim,
        make_rule(spec),
        seed=spec.seed,
        initial=INITIALIZERS[spec.initial](spec.scale),
        memory_bytes=spec.memory_bytes,
        path=cold,
        admission=spec.admission,
        evict_after=spec.evict_after,
        max_rows=spec.max_rows,
        staleness=spec.staleness,
        threads=spec.threads,
    )


def make_rule(spec: TableSpec | DenseSpec) -> Rule:
    if spec.rule not in RULES:
        raise UnknownNameError("rule", "rule", spec.rule, RULES)
    options = dict(spec.options) if spec.lr is None else {**spec.options, "lr": spec.lr}
    try:
        return RULES[spec.rule](**options)
    except TypeError as error:
        raise InputError("options", f"{spec.rule}: {error}") from None


def as_document(document: object) -> Answer:
    """An answer of any size: JSON behind the header."""
    text = json.dumps(document).encode()
    return Answer(buffers=(as_buffer(np.frombuffer(text, np.uint8)),))


def _check_name(name: str) -> None:
    """Names become files of a snapshot."""
    if not 0 < len(name) <= 100 or not all(c.isalnum() or c in "-_." for c in name):
        allowed = "1 to 100 letters, digits, '-', '_' or '.'"
        raise InputError("name", f"expected {allowed}, got {name!r:.50}")
    if name.startswith("."):
        raise InputError("name", f"must not start with a dot: {name!r:.50}")


def _too_late(hosted: Hosted, request: Request) -> Exception:
    batch = request.integer("batch")
    return NotCommittedError(batch, hosted.table.committed, 0.0)
