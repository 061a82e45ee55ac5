"""A sparse table in this process: rows by 64-bit id, with the rule that trains them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from heterps.errors import InputError, NotCommittedError, SnapshotError, StoreError
from heterps.ps import _native
from heterps.ps.arrays import ids_of, out_of, rows_of
from heterps.ps.initial import INITIALIZERS, Initializer, Uniform
from heterps.ps.parts import write_table
from heterps.ps.rules import Rule, make_rule
from heterps.ps.sharding import buckets_of
from heterps.ps.snapshots import Base, Partial, Where, open_snapshot

StrPath = str | os.PathLike[str]
_MOST = 2**32 - 1
_NAME = "table"  # of the only table in a snapshot that a table saves by itself


class SparseTable:
    """Rows of ``dim`` floats by 64-bit id, created when they are first pushed.

    ``rule`` (a name or a ``Rule``) is how gradients change rows, ``initial`` what a row holds
    before its first. ``memory_bytes`` bounds the memory: past it the least useful rows move to
    a scratch file in the folder ``path``. ``admission``: an id gets a row at its n-th sighting.
    ``evict_after``: a row that has not been pushed for n steps is gone. ``max_rows``: past it the
    rows of lowest score go. ``staleness``: how many batches a pull may run ahead of the commits.
    0 turns each of these off; ``threads`` 0 takes all cores.

    Calls may come from several threads. ``docs/parameter-server.md`` has the exact semantics.
    """

    def __init__(
        self,
        dim: int,
        rule: str | Rule = "rowwise_adagrad",
        *,
        lr: float | None = None,
        seed: int = 0,
        initial: Initializer | None = None,
        memory_bytes: int | None = None,
        path: StrPath | None = None,
        admission: int = 0,
        evict_after: int = 0,
        max_rows: int = 0,
        staleness: int = 0,
        threads: int = 0,
    ) -> None:
        self.dim = _whole("dim", dim, low=1, high=65_536)
        self.rule = make_rule(rule, lr)
        self.initial = _checked_initializer(initial)
        self.seed = _whole("seed", seed, high=2**64 - 1)
        limits = {"admission": admission, "evict_after": evict_after, "max_rows": max_rows}
        budget = 0 if memory_bytes is None else _whole("memory_bytes", memory_bytes, low=1)
        if budget and path is None:
            raise InputError("path", "memory_bytes needs a folder for the rows that do not fit")
        self.staleness = _whole("staleness", staleness, high=_MOST)
        self._saving = threading.Lock()
        self._last: tuple[str, int] | None = None  # the last snapshot and the step it was taken at
        self._capture: Any = None
        self._begun = False  # captured, and yet to be written
        self._closed = False
        with _failures():
            self._store = self._open_store(
                dim=self.dim,
                rule=self.rule.name,
                lr=self.rule.lr,
                options=self.rule.options(),
                initial=self.initial.name,
                scale=float(self.initial.scale),
                seed=self.seed,
                threads=_whole("threads", threads, high=1024),
                memory_bytes=budget,
                path=os.fspath(path) if budget and path is not None else "",
                staleness=self.staleness,
                **{key: _whole(key, value, high=_MOST) for key, value in limits.items()},
            )

    @staticmethod
    def _open_store(**settings: Any) -> Any:
        """Where the rows are; tests put the reference here."""
        return _native.Table(**settings)

    def pull(
        self, ids: Any, batch: int | None = None, out: Any = None, timeout_s: float | None = None
    ) -> npt.NDArray[np.float32]:
        """The rows of ``ids``, in their order; into ``out`` if it is given. Changes nothing.

        With ``batch`` it waits until the batches before it have committed, up to ``staleness``;
        NotCommittedError after ``timeout_s``.
        """
        asked = ids_of(ids)
        shape = (len(asked), self.dim)
        target = np.empty(shape, np.float32) if out is None else out_of(out, shape)
        with self._failures():
            if batch is not None:
                self._wait(batch, timeout_s)
            self._store.pull(asked, target)
        return target

    def push(self, ids: Any, grads: Any, lr: float | None = None) -> None:
        """One step of the rule: the gradients of an id that occurs more than once are summed."""
        asked = ids_of(ids)
        rate = None if lr is None else self.rule.check_lr(lr)
        with self._failures():
            self._store.push(asked, rows_of(grads, (len(asked), self.dim)), rate)

    def announce(self, batch: int, parts: int, lr: float | None = None) -> None:
        """Say of how many parts a batch consists; it commits once they are all there."""
        rate = None if lr is None else self.rule.check_lr(lr)
        with self._failures("batch"):
            self._store.announce(_whole("batch", batch), _whole("parts", parts), rate)

    def accumulate(self, batch: int, part: tuple[int, int], ids: Any, grads: Any) -> bool:
        """Add the gradients of one part, (micro-batch, layer); False if it was there already."""
        asked = ids_of(ids)
        values = rows_of(grads, (len(asked), self.dim))
        micro_batch, layer = _checked_part(part)
        with self._failures("batch"):
            return bool(
                self._store.accumulate(
                    _whole("batch", batch),
                    micro_batch,
                    layer,
                    asked,
                    values,
                )
            )

    def prefetch(self, ids: Any) -> None:
        """Bring the rows of coming batches back into memory, in the background."""
        with self._failures():
            self._store.prefetch(ids_of(ids))

    def drain(self) -> None:
        """Wait for the prefetches asked for so far."""
        with self._failures():
            self._store.drain()

    @property
    def lr(self) -> float:
        """The learning rate of pushes and batches that name none."""
        return float(self._store.lr)

    @lr.setter
    def lr(self, lr: float) -> None:
        self._store.lr = self.rule.check_lr(lr)

    @property
    def step(self) -> int:
        """How many pushes and commits there have been."""
        return int(self._store.step)

    @property
    def committed(self) -> int:
        """The last batch that has committed; -1 before the first."""
        return int(self._store.committed)

    @committed.setter
    def committed(self, batch: int) -> None:
        self._store.committed = _whole("committed", batch, low=-1)

    def __len__(self) -> int:
        with self._failures():
            return len(self._store)

    def stats(self) -> dict[str, float]:
        """Counts, bytes and seconds since the table was made."""
        with self._failures():
            return dict(self._store.stats())

    def save(self, path: Where, delta_of: Where | None = None) -> None:
        """Write a snapshot, to a path or a URL; with ``delta_of`` only what changed since that one,
        the last."""
        base = None if delta_of is None else open_snapshot(delta_of).as_base()
        with Partial(path) as partial:
            part = self.save_part(partial.folder, delta_of=base)
            identity = None
            try:
                identity = partial.publish([part], base)
            finally:
                self.conclude_save(identity)

    def save_part(
        self,
        folder: Where,
        name: str = _NAME,
        shard: int = 0,
        shards: int = 1,
        delta_of: Base | None = None,
    ) -> dict[str, Any]:
        """Write this shard's rows into a snapshot that others write to as well.

        Gives the entry to publish; ``conclude_save`` must follow, before another save can begin.
        After ``begin_save`` it is the rows of that moment that are written.
        """
        buckets = buckets_of(shard, shards)
        if not self._begun:
            self.begin_save(delta_of)
        self._begun = False
        try:
            with self._failures():
                return write_table(folder, name, self._settings(), self._capture, buckets)
        except BaseException:
            self.conclude_save(None)
            raise

    def begin_save(self, delta_of: Base | None = None) -> None:
        """Holds on to the rows as they are now, for ``save_part`` to write: what is about to change
        is copied first. Returns at once."""
        if not self._saving.acquire(blocking=False):
            raise SnapshotError("table", "is being saved already")
        try:
            with self._failures():
                self._capture = self._store.capture(self._since(delta_of))
        except BaseException:
            self._saving.release()
            raise
        self._begun = True

    def give_up_save(self) -> None:
        """The same as ``conclude_save(None)``, also where none has begun."""
        if self._saving.locked():
            self.conclude_save(None)

    def conclude_save(self, identity: str | None) -> None:
        """The snapshot was published under this identity, or (None) it was not."""
        capture, self._capture = self._capture, None
        self._begun = False
        if capture is not None:
            capture.finish(identity is not None)
            if identity is not None:
                self._last = (identity, int(capture.step))
        self._saving.release()

    def load(self, path: Where, shard: int = 0, shards: int = 1, name: str = _NAME) -> None:
        """Fill this table, which must be new, with its shard's share of a snapshot."""
        buckets = buckets_of(shard, shards)
        if len(self) or self.step:
            raise InputError("table", "a snapshot is loaded into a new table only")
        snapshot = open_snapshot(path)
        settings = self._settings()
        lr = settings.pop("lr")
        settings.pop("options")
        with self._failures():
            snapshot.load(name, settings, self._store, buckets)
            self._store.lr = snapshot.parts_of(name, {})[0]["settings"].get("lr", lr)
        self._last = (snapshot.identity, self.step)

    def close(self) -> None:
        """Give back the memory and the scratch file."""
        self._closed = True
        self._store = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, batch: int, timeout_s: float | None) -> None:
        if timeout_s is not None and not timeout_s >= 0:
            raise InputError("timeout_s", f"expected 0 or more, got {timeout_s!r}")
        if not self._store.wait(_whole("batch", batch), -1 if timeout_s is None else timeout_s):
            raise NotCommittedError(batch, self.committed, timeout_s or 0)

    def _since(self, base: Base | None) -> int:
        if base is None:
            return -1
        if self._last is None or self._last[0] != base.identity:
            raise SnapshotError(base.path, "a delta follows the last snapshot saved or loaded")
        return self._last[1]

    def _settings(self) -> dict[str, Any]:
        """What a snapshot says about the table; all but the last two have to agree on load."""
        return {
            "dim": self.dim,
            "state_width": self.rule.state_width(self.dim),
            "rule": self.rule.name,
            "seed": self.seed,
            "initial": self.initial.name,
            "scale": float(self.initial.scale),
            "lr": self.lr,
            "options": self.rule.options(),
        }

    @contextmanager
    def _failures(self, path: str = "") -> Iterator[None]:
        if self._closed:
            raise InputError("table", "is closed")
        with _failures(path):
            yield


@contextmanager
def _failures(path: str = "") -> Iterator[None]:
    """Errors of the store as errors a person can act on."""
    try:
        yield
    except ValueError as error:
        raise InputError(path, str(error)) from error
    except _native.StoreError as error:
        raise StoreError(str(error)) from error


def _whole(path: str, value: Any, low: int = 0, high: int = 2**63 - 1) -> int:
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise InputError(path, f"expected a whole number from {low} to {high}, got {value!r}")
    return int(value)


def _checked_part(part: Any) -> tuple[int, int]:
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise InputError("part", f"expected (micro-batch, layer), got {part!r}")
    return _whole("part", part[0]), _whole("part", part[1])


def _checked_initializer(initial: Initializer | None) -> Initializer:
    if initial is None:
        return Uniform(0.01)
    given: object = initial
    if not isinstance(given, Initializer):
        known = ", ".join(kind.__name__ for kind in INITIALIZERS.values())
        raise InputError("initial", f"expected one of {known}, got {given!r}")
    return given
