"""The parameter server's store in plain Python: slow, and meant to be obviously right.

It has the methods of the store in C++ and shares nothing with it but the words of
docs/parameter-server.md. Tests ask both the same things and expect the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterps.ps.initial import INITIALIZERS
from heterps.ps.rules import RULES
from heterps.ps.sharding import BUCKETS, bucket_of, mix64

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]
Rows = tuple[Ids, Floats, Floats, Counts, Counts]
Part = tuple[int, int]
_MOST = 2**32 - 1


@dataclass
class _Row:
    values: Floats
    state: Floats
    frequency: int
    last_seen: int


@dataclass
class _Sightings:
    """An id that has not been seen often enough to get a row."""

    count: int
    last_seen: int


@dataclass
class _Batch:
    parts: dict[Part, tuple[Ids, Floats]] = field(default_factory=dict)
    announced: int | None = None
    lr: float | None = None


class ReferenceTable:
    """See ``heterps.ps._native.Table``."""

    def __init__(
        self,
        *,
        dim: int,
        rule: str,
        lr: float,
        options: Mapping[str, float] | None = None,
        initial: str = "zeros",
        scale: float = 0.0,
        seed: int = 0,
        threads: int = 0,
        memory_bytes: int = 0,
        path: str = "",
        admission: int = 0,
        evict_after: int = 0,
        max_rows: int = 0,
        staleness: int = 0,
    ) -> None:
        self.dim = dim
        self.rule = RULES[rule](lr=lr, **(options or {}))
        self.initial = INITIALIZERS[initial](scale)
        self.seed = seed
        self.admission = admission
        self.evict_after = evict_after
        self.max_rows = max_rows
        self.staleness = staleness
        self.lr = lr
        self.step = 0
        self._committed = -1
        self._rows: dict[int, _Row] = {}
        self._pending: dict[int, _Sightings] = {}
        self._batches: dict[int, _Batch] = {}
        self._removed: set[int] = set()

    def pull(self, ids: Ids, out: Floats) -> None:
        for index, key in enumerate(ids.tolist()):
            row = self._live(self._rows, key)
            out[index] = self._default(key) if row is None else row.values

    def push(self, ids: Ids, grads: Floats, lr: float | None = None) -> None:
        self._step(sum_duplicates(ids, grads), self.lr if lr is None else lr)

    def announce(self, batch: int, parts: int, lr: float | None = None) -> None:
        if parts < 0:
            raise ValueError(f"a batch of {parts} parts")
        if batch <= self._committed:
            return
        opened = self._batches.get(batch, _Batch())
        if opened.announced not in (None, parts):
            raise ValueError(f"batch {batch} was announced with {opened.announced} parts")
        if len(opened.parts) > parts:
            raise ValueError(f"batch {batch} already has {len(opened.parts)} parts")
        if opened.announced is None:
            opened.announced, opened.lr = parts, lr
        self._batches[batch] = opened
        self._commit_whole_batches()

    def accumulate(self, batch: int, micro_batch: int, layer: int, ids: Ids, grads: Floats) -> bool:
        if batch <= self._committed:
            return False
        opened = self._batches.get(batch, _Batch())
        if (micro_batch, layer) in opened.parts:
            return False
        if len(opened.parts) == opened.announced:
            raise ValueError(f"batch {batch} already has its {opened.announced} parts")
        opened.parts[micro_batch, layer] = (ids.copy(), grads.copy())
        self._batches[batch] = opened
        self._commit_whole_batches()
        return True

    @property
    def committed(self) -> int:
        """The last batch that has changed the rows; -1 before the first."""
        return self._committed

    @committed.setter
    def committed(self, batch: int) -> None:
        self._committed = batch
        self._batches = {b: v for b, v in self._batches.items() if b > batch}
        self._commit_whole_batches()

    def wait(self, batch: int, timeout_s: float = 0.0) -> bool:
        """Whether a pull for ``batch`` may go ahead; nothing else could change that meanwhile."""
        return self._committed >= batch - 1 - self.staleness

    def prefetch(self, ids: Ids) -> None:
        """All rows are in memory."""

    def drain(self) -> None:
        """There is nothing to wait for."""

    def __len__(self) -> int:
        return sum(1 for _ in self._live_items(self._rows))

    def stats(self) -> dict[str, float]:
        pending = sum(1 for _ in self._live_items(self._pending))
        return {"rows": len(self), "pending": pending, "open_batches": len(self._batches)}

    def capture(self, since_step: int = -1) -> ReferenceCapture:
        return ReferenceCapture(self, since_step)

    def restore(
        self, ids: Ids, values: Floats, state: Floats, frequency: Counts, last_seen: Counts
    ) -> None:
        for index, key in enumerate(ids.tolist()):
            self._pending.pop(key, None)
            self._rows[key] = _Row(
                values[index].copy(),
                state[index].copy(),
                int(frequency[index]),
                int(last_seen[index]),
            )

    def restore_pending(self, ids: Ids, counts: Counts, last_seen: Counts) -> None:
        for key, count, seen in zip(ids.tolist(), counts.tolist(), last_seen.tolist(), strict=True):
            self._pending[key] = _Sightings(count, seen)

    def remove(self, ids: Ids) -> None:
        for key in ids.tolist():
            self._pending.pop(key, None)
            self._drop(key)

    def _live(self, held: dict[int, Any], key: int) -> Any:
        """What is held of an id, unless it has not been seen for too long."""
        found = held.get(key)
        if found is None or not self.evict_after:
            return found
        return found if self.step - found.last_seen <= self.evict_after else None

    def _live_items(self, held: dict[int, Any]) -> Iterable[tuple[int, Any]]:
        return ((key, held[key]) for key in held if self._live(held, key) is not None)

    def _default(self, key: int) -> Floats:
        if self.admission:
            return np.zeros(self.dim, np.float32)
        return self._initial(key)

    def _initial(self, key: int) -> Floats:
        row: Floats = self.initial.rows(np.array([key]), self.dim, self.seed)[0]
        return row

    def _step(self, sums: dict[int, Floats], lr: float) -> None:
        """One push or commit: count the ids, change the rows that there are, keep the limits."""
        self.step += 1
        for key, grad in sums.items():
            row = self._sight(key)
            if row is not None:
                with np.errstate(all="ignore"):
                    self.rule.apply(row.values[None], row.state[None], grad[None], lr, self.step)
        self._forget_the_expired()
        self._keep_to_max_rows()

    def _sight(self, key: int) -> _Row | None:
        """Count a sighting; the id's row, if it has one by now."""
        row: _Row | None = self._live(self._rows, key)
        if row is None:
            self._drop(key)
            row = self._admit(key)
        if row is not None:
            row.frequency = min(row.frequency + 1, _MOST)
            row.last_seen = self.step
        return row

    def _admit(self, key: int) -> _Row | None:
        """A new row for an id that was sighted, unless it has to be sighted more often."""
        seen = self._live(self._pending, key)
        before = 0 if seen is None else seen.count
        if before + 1 < self.admission:
            self._pending[key] = _Sightings(before + 1, self.step)
            return None
        self._pending.pop(key, None)
        self._rows[key] = _Row(
            self._initial(key), self.rule.initial_state(self.dim), before, self.step
        )
        return self._rows[key]

    def _drop(self, key: int) -> None:
        if self._rows.pop(key, None) is not None:
            self._removed.add(key)

    def _forget_the_expired(self) -> None:
        for key in [key for key in self._rows if self._live(self._rows, key) is None]:
            self._drop(key)
        self._pending = dict(self._live_items(self._pending))

    def _keep_to_max_rows(self) -> None:
        if not self.max_rows or len(self) <= self.max_rows:
            return

        def worth(key: int) -> tuple[float, int]:
            row = self._rows[key]
            score = row.frequency / (1.0 + self.step - row.last_seen)
            return score, -int(mix64(np.array([key]).view(np.uint64))[0])

        kept = max(1, self.max_rows * 15 // 16)
        for key in sorted(self._rows, key=worth)[: len(self._rows) - kept]:
            self._drop(key)

    def _commit_whole_batches(self) -> None:
        while self._is_whole(self._batches.get(self._committed + 1)):
            batch = self._batches.pop(self._committed + 1)
            self._step(sum_parts(batch.parts), self.lr if batch.lr is None else batch.lr)
            self._committed += 1

    def _is_whole(self, batch: _Batch | None) -> bool:
        return batch is not None and batch.announced == len(batch.parts)


class ReferenceDense:
    """See ``heterps.ps._native.Dense``: a matrix of values with one state a row."""

    def __init__(
        self, *, values: Floats, rule: str, lr: float, options: Mapping[str, float] | None = None
    ) -> None:
        self.rule = RULES[rule](lr=lr, **(options or {}))
        self.lr = lr
        self.step = 0
        self._values = values.copy()
        self._state = np.tile(self.rule.initial_state(values.shape[1]), (len(values), 1))

    def pull(self, out: Floats) -> None:
        out[:] = self._values

    def push(self, grads: Floats, lr: float | None = None) -> None:
        self.step += 1
        rate = self.lr if lr is None else lr
        with np.errstate(all="ignore"):
            self.rule.apply(self._values, self._state, grads, rate, self.step)

    def read_state(self, out: Floats) -> None:
        out[:] = self._state

    def restore(self, values: Floats, state: Floats, step: int) -> None:
        self._values[:], self._state[:], self.step = values, state, step


class ReferenceCapture:
    """A copy of the rows seen after ``since_step``, taken when it is made."""

    def __init__(self, table: ReferenceTable, since_step: int) -> None:
        live = dict(table._live_items(table._rows))
        found = [(key, row) for key, row in live.items() if row.last_seen > since_step]
        buckets = bucket_of(np.array([key for key, _ in found], np.int64))
        chosen = [found[n] for n in np.argsort(buckets, kind="stable")]
        self._table = table
        self._all = _as_arrays(chosen, table.dim, table.rule.state_width(table.dim))
        self._next = 0
        self.rows = len(chosen)
        self.bucket_counts = np.bincount(buckets, minlength=BUCKETS).astype(np.uint64)
        self.step = table.step
        self.committed = table.committed
        self.removed = np.array(sorted(table._removed - live.keys()), np.int64)
        pending = list(table._live_items(table._pending))
        self.pending_ids = np.array([key for key, _ in pending], np.int64)
        self.pending_counts = np.array([seen.count for _, seen in pending], np.uint32)
        self.pending_last_seen = np.array([seen.last_seen for _, seen in pending], np.uint32)

    def next(self, max_rows: int) -> Rows | None:
        """The next rows, at most ``max_rows``, by ascending bucket; None after the last."""
        at = slice(self._next, self._next + max_rows)
        self._next += max_rows
        ids, values, state, frequency, last_seen = self._all
        if not len(ids[at]):
            return None
        return ids[at], values[at], state[at], frequency[at], last_seen[at]

    def finish(self, ok: bool) -> None:
        """With ``ok`` the next capture's ``removed`` starts from here."""
        if ok:
            self._table._removed -= set(self.removed.tolist())


def sum_duplicates(ids: Ids, grads: Floats) -> dict[int, Floats]:
    """The gradient of each id, summed in order of occurrence."""
    return _sum(zip(ids.tolist(), grads, strict=True))


def sum_parts(parts: Mapping[Part, tuple[Ids, Floats]]) -> dict[int, Floats]:
    """Sums within each part first, then over the parts in ascending order."""
    summed = (sum_duplicates(*parts[part]) for part in sorted(parts))
    return _sum(pair for sums in summed for pair in sums.items())


def _sum(pairs: Iterable[tuple[int, Floats]]) -> dict[int, Floats]:
    sums: dict[int, Floats] = {}
    with np.errstate(all="ignore"):
        for key, grad in pairs:
            sums[key] = sums[key] + grad if key in sums else grad.copy()
    return sums


def _as_arrays(rows: list[tuple[int, _Row]], dim: int, width: int) -> Rows:
    def stack(read: Callable[[_Row], Floats], columns: int) -> Floats:
        stacked = np.array([read(row) for _, row in rows], np.float32)
        return stacked.reshape(len(rows), columns)

    return (
        np.array([key for key, _ in rows], np.int64),
        stack(lambda row: row.values, dim),
        stack(lambda row: row.state, width),
        np.array([row.frequency for _, row in rows], np.uint32),
        np.array([row.last_seen for _, row in rows], np.uint32),
    )
