"""Tables to test with: the store in C++ and the reference, made from the same settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from heterps.ps._native import Table
from heterps.ps.dense import DenseTensor
from heterps.ps.initial import Initializer, Uniform
from heterps.ps.reference import ReferenceDense, ReferenceTable
from heterps.ps.rules import Rule, Sgd
from heterps.ps.table import SparseTable

STORES = ("reference", "native")


def make_store(kind: str, dim: int, rule: Rule | None = None, **settings: Any) -> Any:
    """A bare store, either kind; ``initial`` is an Initializer, the rest as the store has it."""
    rule = rule or Sgd(lr=0.1)
    initial: Initializer = settings.pop("initial", Uniform(0.1))
    arguments = {
        "dim": dim,
        "rule": rule.name,
        "lr": rule.lr,
        "options": rule.options(),
        "initial": initial.name,
        "scale": initial.scale,
        "seed": 0,
        "threads": 1,
        "memory_bytes": 0,
        "path": "",
        "admission": 0,
        "evict_after": 0,
        "max_rows": 0,
        "staleness": 0,
        **settings,
    }
    return (Table if kind == "native" else ReferenceTable)(**arguments)


class SparseTableOnReference(SparseTable):
    """The Python surface with the reference under it."""

    @staticmethod
    def _open_store(**settings: Any) -> Any:
        return ReferenceTable(**settings)


def make_table(kind: str, *args: Any, **settings: Any) -> SparseTable:
    """A SparseTable on either kind of store."""
    return (SparseTable if kind == "native" else SparseTableOnReference)(*args, **settings)


class DenseTensorOnReference(DenseTensor):
    """The same for a dense tensor."""

    @staticmethod
    def _open_store(**settings: Any) -> Any:
        return ReferenceDense(**settings)


def make_tensor(kind: str, *args: Any, **settings: Any) -> DenseTensor:
    """A DenseTensor on either kind of store."""
    return (DenseTensor if kind == "native" else DenseTensorOnReference)(*args, **settings)


def pull(store: Any, ids: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The rows of ids from a bare store."""
    asked = np.ascontiguousarray(ids, np.int64)
    out = np.empty((len(asked), store.dim), np.float32)
    store.pull(asked, out)
    return out


def rows_of(store: Any, since_step: int = -1) -> dict[str, npt.NDArray[Any]]:
    """Everything a store holds, sorted by id, so that two can be compared."""
    capture = store.capture(since_step)
    blocks = list(iter(lambda: capture.next(1000), None))
    names = ("ids", "values", "state", "frequency", "last_seen")
    columns = [np.concatenate(column) for column in zip(*blocks, strict=True)] if blocks else []
    found = dict(zip(names, columns, strict=False)) or {"ids": np.empty(0, np.int64)}
    order = np.argsort(found["ids"])
    pending = np.argsort(capture.pending_ids)
    capture.finish(False)
    return {
        **{name: column[order] for name, column in found.items()},
        "pending_ids": capture.pending_ids[pending],
        "pending_counts": capture.pending_counts[pending],
        "pending_last_seen": capture.pending_last_seen[pending],
        "step": np.array(capture.step),
        "committed": np.array(capture.committed),
        "buckets": np.array(capture.bucket_counts),
    }


def assert_same_rows(one: Any, other: Any) -> None:
    """Two stores hold the same, bit for bit."""
    left, right = rows_of(one), rows_of(other)
    assert left.keys() == right.keys()
    for name, column in left.items():
        assert column.dtype == right[name].dtype, name
        assert column.tobytes() == right[name].tobytes(), (name, column, right[name])
