"""A table that lives on the servers, with the verbs of ``SparseTable``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heterps.errors import InputError
from heterps.ps.arrays import ids_of, out_of, rows_of
from heterps.ps.calls import Joint, Reply
from heterps.ps.pool import Pool, encoded, placed
from heterps.ps.precision import decode_rows
from heterps.ps.protocol import TableSpec
from heterps.ps.routing import Route, route
from heterps.ps.snapshots import Where
from heterps.wire.frames import DTYPES, Buffer

if TYPE_CHECKING:
    from heterps.ps.client import Client

Floats = NDArray[np.float32]


class RemoteTable:
    """Made by ``Client.create_table`` or ``Client.table``. Every verb has a form with ``_async``
    that gives a future, which ends by the call's deadline.
    """

    def __init__(self, client: Client, name: str, spec: TableSpec) -> None:
        self._client = client
        self.name = name
        self.spec = spec
        self.dim = spec.dim

    def pull(
        self,
        ids: Any,
        batch: int | None = None,
        out: Any = None,
        timeout_s: float | None = None,
        *,
        distinct: bool = False,
    ) -> Floats:
        """The rows of ``ids``; with ``batch`` once the batches before it have committed.
        ``distinct`` promises that no id occurs twice, which saves time."""
        return self.pull_async(ids, batch, out, timeout_s, distinct=distinct).result()

    def pull_async(
        self,
        ids: Any,
        batch: int | None = None,
        out: Any = None,
        timeout_s: float | None = None,
        *,
        distinct: bool = False,
    ) -> Future[Floats]:
        """What a single server answers to distinct ids may lie in memory that is shared with it,
        which is used for other rows once the array is gone."""
        asked = ids_of(ids)
        shape = (len(asked), self.dim)
        target = None if out is None else out_of(out, shape)
        way = route(asked, self._client.shards, distinct=distinct)
        holding = [s for s in range(way.shards) if way.offsets[s] < way.offsets[s + 1]]
        if batch is not None and not holding:
            holding = [0]  # without ids it still waits
        pulled = _Pulled(way, shape, target, len(holding), self._client.dtype)
        for index, shard in enumerate(holding):
            done = pulled.joint.part(index, pulled.take(shard))
            self._pull_of(shard, way, batch, timeout_s, done)
        return pulled.joint.future

    def push(
        self,
        ids: Any,
        grads: Any,
        lr: float | None = None,
        timeout_s: float | None = None,
        *,
        distinct: bool = False,
    ) -> None:
        """One step of the rule, on every shard: also on those that hold none of the ids."""
        self.push_async(ids, grads, lr, timeout_s, distinct=distinct).result()

    def push_async(
        self,
        ids: Any,
        grads: Any,
        lr: float | None = None,
        timeout_s: float | None = None,
        *,
        distinct: bool = False,
    ) -> Future[None]:
        fields = {"table": self.name, "lr": lr}
        way = route(ids_of(ids), self._client.shards, distinct=distinct)
        return self._give("push", fields, way, grads, lambda answers: None, timeout_s)

    def announce(self, batch: int, parts: int, lr: float | None = None) -> None:
        """Say of how many parts a batch consists."""
        fields = {"table": self.name, "batch": batch, "parts": parts, "lr": lr}
        self._client.everywhere("announce", fields).result()

    def accumulate(
        self,
        batch: int,
        part: tuple[int, int],
        ids: Any,
        grads: Any,
        timeout_s: float | None = None,
        *,
        parts: int | None = None,
        lr: float | None = None,
        distinct: bool = False,
    ) -> bool:
        """Add the gradients of one part; False if every shard had it already. With ``parts`` it
        announces the batch too, and ``lr`` with it."""
        return self.accumulate_async(
            batch, part, ids, grads, timeout_s, parts=parts, lr=lr, distinct=distinct
        ).result()

    def accumulate_async(
        self,
        batch: int,
        part: tuple[int, int],
        ids: Any,
        grads: Any,
        timeout_s: float | None = None,
        *,
        parts: int | None = None,
        lr: float | None = None,
        distinct: bool = False,
    ) -> Future[bool]:
        micro_batch, layer = part
        place = {"batch": batch, "micro_batch": micro_batch, "layer": layer}
        fields: dict[str, Any] = {"table": self.name, **place}
        if parts is not None:
            fields |= {"parts": parts, "lr": lr}
        way = route(ids_of(ids), self._client.shards, distinct=distinct)
        return self._give("accumulate", fields, way, grads, _any_taken, timeout_s)

    def prefetch(self, ids: Any) -> None:
        """Have the rows of coming batches brought into memory; does not wait for it."""
        self.prefetch_async(ids).result()

    def prefetch_async(self, ids: Any) -> Future[None]:
        way = route(ids_of(ids), self._client.shards)
        joint = Joint(way.shards, lambda answers: None)
        for shard in range(way.shards):
            pool = self._client.link(shard).pool
            piece = placed(pool, way.distinct[way.slice_of(shard)])
            done = joint.part(shard)
            self._client.call(shard, "prefetch", {"table": self.name}, done, [piece], pool=pool)
        return joint.future

    def save(self, path: Where, delta_of: Where | None = None) -> None:
        """A snapshot of this table alone."""
        self._client.save(path, [self.name], delta_of)

    def load(self, path: Where, alias: str | None = None) -> None:
        """Replace the rows by a snapshot's, which may call the table ``alias``."""
        self._client.load(path, [self.name], alias)

    def stats(self) -> dict[str, float]:
        """The counts of all shards, added up."""
        total: dict[str, float] = {}
        for server in self._client.stats():
            for key, value in server["tables"].get(self.name, {}).items():
                total[key] = total.get(key, 0) + value
        return total

    def __len__(self) -> int:
        return sum(about["rows"] for about in self._describe())

    @property
    def step(self) -> int:
        return max(int(about["step"]) for about in self._describe())

    @property
    def committed(self) -> int:
        """The last batch that has committed on every shard."""
        return min(int(about["committed"]) for about in self._describe())

    @committed.setter
    def committed(self, batch: int) -> None:
        """Where numbers of batches go on, after a snapshot of another run say: from -1 anew."""
        fields = {"table": self.name, "batch": batch}
        self._client.everywhere("set_committed", fields).result()

    @property
    def lr(self) -> float:
        return float(self._describe()[0]["lr"])

    @lr.setter
    def lr(self, lr: float) -> None:
        self._client.everywhere("set_lr", {"table": self.name, "lr": lr}).result()

    def _describe(self) -> list[Mapping[str, Any]]:
        return self._client.everywhere("describe", {"table": self.name}).result()

    def _pull_of(
        self,
        shard: int,
        way: Route,
        batch: int | None,
        timeout_s: float | None,
        done: Callable[[Reply | Exception], None],
    ) -> None:
        pool, dtype = self._client.link(shard).pool, self._client.dtype
        mine = way.distinct[way.slice_of(shard)]
        ids, out = placed(pool, mine), pool.take(dtype, (len(mine), self.dim))
        fields = {"table": self.name, "batch": batch, "dtype": dtype}
        self._client.call(shard, "pull", fields, done, [ids], out, pool, timeout_s)

    def _give(
        self,
        verb: str,
        fields: Mapping[str, Any],
        way: Route,
        grads: Any,
        finish: Callable[[list[Any]], Any],
        timeout_s: float | None,
    ) -> Future[Any]:
        """Gradients to every shard, those of an id summed first."""
        values = rows_of(grads, (way.asked, self.dim))
        pools = [self._client.link(shard).pool for shard in range(way.shards)]
        joint = Joint(way.shards, finish)
        for shard, sums in enumerate(self._sums(way, values, pools)):
            mine = placed(pools[shard], way.distinct[way.slice_of(shard)])
            self._client.call(
                shard, verb, fields, joint.part(shard), [mine, sums], None, pools[shard], timeout_s
            )
        return joint.future

    def _sums(self, way: Route, values: Floats, pools: list[Pool]) -> list[Buffer]:
        """The gradients of each shard's ids as they travel; for a single shard they are summed
        in the shared memory itself.
        """
        shape, dtype = (len(way.distinct), self.dim), self._client.gradient_dtype
        piece = pools[0].take(dtype, shape) if way.shards == 1 and dtype == "f4" else None
        if piece is not None and piece.array is not None:
            way.sums(values, piece.array)
            return [piece]
        sums = np.empty(shape, np.float32)
        way.sums(values, sums)
        return [
            encoded(pool, dtype, sums[way.slice_of(shard)], owned=True)
            for shard, pool in enumerate(pools)
        ]


class _Pulled:
    """Puts the rows of the shards' replies together, in the thread of the links: in ``target``, or
    where they are found if they need not be moved."""

    def __init__(
        self, way: Route, shape: tuple[int, int], target: Floats | None, calls: int, dtype: str
    ) -> None:
        self._way = way
        self._shape = shape
        self._given = target
        self._dtype = dtype
        self._rows: Floats | None = None
        if calls > 1:
            self._rows = np.empty((len(way.distinct), shape[1]), np.float32)
        self.joint = Joint(calls, self._finish)
        if calls == 0:
            self.joint.future.set_result(self._target())

    def take(self, shard: int) -> Callable[[Reply], Floats | None]:
        """Gives all rows, if these are all."""

        def take(reply: Reply) -> Floats | None:
            rows = self._decoded(reply, self._way.slice_of(shard))
            if self._rows is not None:
                self._rows[self._way.slice_of(shard)] = rows
                return None
            as_asked = self._given is None and self._way.inverse is None
            if as_asked and self._dtype == "f4" and reply.lend is not None:
                return reply.lend()
            return self._spread(rows)

        return take

    def _decoded(self, reply: Reply, mine: slice) -> Floats:
        expected = (mine.stop - mine.start, self._shape[1])
        rows = reply.arrays[0] if reply.arrays else None
        if rows is None or rows.shape != expected or rows.dtype != DTYPES[self._dtype]:
            raise InputError("rows", f"the server's answer does not hold rows of {expected}")
        return decode_rows(rows, self._dtype)

    def _finish(self, answers: list[Any]) -> Floats:
        found: Floats = self._spread(self._rows) if self._rows is not None else answers[0]
        return found

    def _spread(self, rows: Floats) -> Floats:
        target = self._target()
        self._way.spread(rows, target)
        return target

    def _target(self) -> Floats:
        return np.empty(self._shape, np.float32) if self._given is None else self._given


def _any_taken(answers: list[Any]) -> bool:
    return any(answer["taken"] for answer in answers)
