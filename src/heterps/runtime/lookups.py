"""Rows of sparse tables for micro-batches: asked for as soon as ids are known, and the gradients
that go back."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heterps.models.batch import Batch
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.rows import Asked, Rows, distinct_of
from heterps.ps.remote import RemoteTable
from heterps.runtime.meter import Spans
from heterps.runtime.optimizers import clip_rows
from heterps.runtime.stage import RowGradients

Pull = Callable[[str, Tensor], Future[Any]]  # of a layer's distinct ids

_PATIENCE_S = 24 * 3600.0  # whoever dies is the coordinator's business
_MAX_UNDER_WAY = 64
_MAX_AHEAD = 256  # a batch's answers go out together: no more than the wire's queues hold


class Announced(NamedTuple):
    """What a table has to know of a batch: of how many parts it consists, and at which rate it
    learns from it (None: its own)."""

    parts: int
    lr: float | None


@dataclass(eq=False)
class Lookup:
    """The rows that one micro-batch has been asked for; ``done`` is called once they are there, or
    at once when it needs none."""

    done: Callable[[], None]
    like: Tensor  # of the type and on the device that the rows are wanted
    training: bool
    value_bytes: int = 4  # of a number of a row on the wire
    _ids: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _pulls: dict[str, Future[NDArray[np.float32]]] = field(default_factory=dict)
    _missing: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(
        self, asked: Mapping[str, Tensor], pull: Callable[[str, Tensor], Future[Any]]
    ) -> None:
        self._missing = len(asked) + 1
        for layer, ids in asked.items():
            self._ids[layer] = distinct_of(ids)
            self._pulls[layer] = future = pull(layer, self._ids[layer][0])
            future.add_done_callback(self._one_less)
        self._one_less(None)

    def asked(self) -> dict[str, Asked]:
        """The rows of each layer, once; raises what a server answered."""
        # A pull refers to this, which is told when it is done: its rows would stay with it.
        pulls, self._pulls = self._pulls, {}
        return {layer: self._asked(layer, pull.result()) for layer, pull in pulls.items()}

    @property
    def row_bytes(self) -> int:
        """What went over the wire, once it has; raises what a server answered."""
        ids = sum(distinct.nbytes for distinct, _ in self._ids.values())
        return ids + self.value_bytes * sum(pull.result().size for pull in self._pulls.values())

    def _asked(self, layer: str, rows: NDArray[np.float32]) -> Asked:
        distinct, inverse = self._ids[layer]
        values = torch.from_numpy(rows).to(self.like)
        inverse = inverse.to(self.like.device)
        return Asked(distinct, Rows(values.requires_grad_(self.training), inverse))

    def _one_less(self, _: object) -> None:
        with self._lock:
            self._missing -= 1
            last = self._missing == 0
        if last:
            self.done()


class BatchPulls:
    """Pulls for batches, which servers answer once earlier batches have committed. Whoever asks may
    have the gradients of those yet to make, so asking never blocks: ``limit`` pulls of a batch and
    those before it are under way, and the rest follow as they are answered. No pull is kept back
    for one of a later batch, so the batch that is next always gets its rows. For several threads.
    """

    def __init__(self, limit: int = _MAX_AHEAD) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._under_way: Counter[int] = Counter()
        self._kept: list[tuple[int, int, Callable[[], Future[Any]], Future[Any]]] = []
        self._order = itertools.count()

    def begin(self, batch: int, pull: Callable[[], Future[Any]]) -> Future[Any]:
        """What ``pull`` comes to, which is called now or later, in any thread."""
        given: Future[Any] = Future()
        with self._lock:
            heapq.heappush(self._kept, (batch, next(self._order), pull, given))
        self._send()
        return given

    def _send(self) -> None:
        while (found := self._next()) is not None:
            batch, _, pull, given = found
            try:
                pulled = pull()
            except Exception as error:  # noqa: BLE001 - it reaches whoever waits
                self._end(batch)
                given.set_exception(error)
                continue
            pulled.add_done_callback(partial(self._answered, batch, given))

    def _next(self) -> tuple[int, int, Callable[[], Future[Any]], Future[Any]] | None:
        """The earliest that is kept, if there is room for it."""
        with self._lock:
            if not self._kept:
                return None
            first = self._kept[0][0]
            if sum(n for batch, n in self._under_way.items() if batch <= first) >= self._limit:
                return None
            self._under_way[first] += 1
            return heapq.heappop(self._kept)

    def _answered(self, batch: int, given: Future[Any], pulled: Future[Any]) -> None:
        self._end(batch)
        self._send()
        error = pulled.exception()
        if error is None:
            given.set_result(pulled.result())
        else:
            given.set_exception(error)

    def _end(self, batch: int) -> None:
        with self._lock:
            self._under_way[batch] -= 1
            if not self._under_way[batch]:
                del self._under_way[batch]


class Lookups:
    """The tables that a stage uses. A pull for a batch is answered once the batches that it has to
    see have committed: it can be sent long before. ``announced`` tells of the batches of a table,
    ``like`` is a tensor of the type and device that rows are wanted in, ``clip`` is the largest
    norm of the gradient of a row from one layer in one micro-batch, ``value_bytes`` what a number
    of a row or of its gradient takes on the wire.
    """

    def __init__(
        self,
        chain: Chain,
        tables: Mapping[str, RemoteTable],
        announced: Callable[[str, int], Announced],
        like: Tensor,
        *,
        clip: float | None = None,
        value_bytes: int = 4,
    ) -> None:
        self._value_bytes = value_bytes
        self._chain = chain
        self._tables = tables
        self._announced = announced
        self._like = like
        self._clip = clip
        self._pulls = BatchPulls()
        self._giving: deque[Future[bool]] = deque()
        self.pushes = Spans()  # in which gradients were under way

    def begin(
        self, batch: int | None, arrived: Batch, context: Context, done: Callable[[], None]
    ) -> Lookup:
        """``batch`` is the one whose view of the tables is wanted."""
        lookup = Lookup(done, self._like, context.training, self._value_bytes)

        def pull(layer: str, ids: Tensor) -> Future[Any]:
            table, asked = self._tables[self._chain.row_layers[layer].table], ids.numpy()
            ask = partial(table.pull_async, asked, batch, timeout_s=_PATIENCE_S, distinct=True)
            if batch is None:
                return ask()
            if table.spec.memory_bytes is not None:
                # Rows on disk come back while the batches before are still under way.
                table.prefetch_async(asked)
            return self._pulls.begin(batch, ask)

        lookup.start(self._chain.ids(arrived, context), pull)
        return lookup

    def wire_bytes(self, gradients: RowGradients) -> int:
        """What giving them takes on the wire."""
        return gradients.ids.nbytes + self._value_bytes * gradients.values.numel()

    def give(self, gradients: RowGradients) -> None:
        """Sends them on their way; raises what went wrong with earlier ones."""
        values = gradients.values.to("cpu", torch.float32)
        if self._clip is not None:
            values = clip_rows(values, self._clip)
        about = self._announced(gradients.table, gradients.batch)
        given = self._tables[gradients.table].accumulate_async(
            gradients.batch,
            gradients.part,
            gradients.ids.numpy(),
            values.numpy(),
            _PATIENCE_S,
            parts=about.parts,
            lr=about.lr,
            distinct=True,
        )
        began = time.perf_counter()
        given.add_done_callback(lambda _: self.pushes.add(began, time.perf_counter()))
        self._giving.append(given)
        self.settle(_MAX_UNDER_WAY)

    def check(self) -> None:
        """Raises what went wrong with those that are answered, whatever is ahead of them."""
        for given in self._giving:
            if given.done():
                given.result()

    def settle(self, left: int = 0) -> None:
        """Waits until no more than ``left`` are under way."""
        while self._giving and (len(self._giving) > left or self._giving[0].done()):
            self._giving.popleft().result()
