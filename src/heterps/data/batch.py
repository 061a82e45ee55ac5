"""The batch that models get: a mapping of names to contiguous CPU tensors.

``label`` and ``weight`` are float32 [n], ``dense`` is float32 [n, D]; a slot is int64 [n] under its
name, a multi-hot one int64 [ids] with int64 [n + 1] under ``<slot>.offsets``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from heterps.data.columns import Columns

Batch = dict[str, torch.Tensor]


class Slice(NamedTuple):
    """Rows ``start`` up to ``stop`` of columns."""

    columns: Columns
    start: int
    stop: int


def make_batch(slices: Sequence[Slice]) -> Batch:
    """The rows of all slices together; of a single one without a copy. At least one is needed,
    which may be empty.
    """
    batch: Batch = {}
    first = slices[0].columns
    for name in ("label", "weight", "dense"):
        if getattr(first, name) is not None:
            batch[name] = _joined(getattr(s.columns, name)[s.start : s.stop] for s in slices)
    if first.singles:
        together = torch.cat([_ids(s) for s in slices], 1) if len(slices) > 1 else _ids(slices[0])
        batch.update(zip(first.singles, together.unbind(0), strict=True))
    for name in first.bags:
        batch[name], batch[f"{name}.offsets"] = _joined_bags(name, slices)
    return batch


def _ids(part: Slice) -> torch.Tensor:
    return torch.from_numpy(part.columns.ids[:, part.start : part.stop])


def batch_bytes(batch: Batch) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in batch.values())


def samples(batch: Batch) -> int:
    """How many samples a batch holds, whatever its columns are."""
    name = next(name for name in batch if name in ("label", "dense") or _counts(name, batch))
    return len(batch[name]) - name.endswith(".offsets")


def _counts(name: str, batch: Batch) -> bool:
    return name.endswith(".offsets") or f"{name}.offsets" not in batch


def _joined(arrays: Iterable[npt.NDArray[Any]]) -> torch.Tensor:
    parts = list(arrays)
    return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))


def _joined_bags(name: str, slices: Sequence[Slice]) -> tuple[torch.Tensor, torch.Tensor]:
    ids, offsets, held = [], [np.zeros(1, np.int64)], 0
    for columns, start, stop in slices:
        bags = columns.bags[name]
        first, last = int(bags.offsets[start]), int(bags.offsets[stop])
        ids.append(bags.ids[first:last])
        offsets.append(bags.offsets[start + 1 : stop + 1] + (held - first))
        held += last - first
    return _joined(ids), _joined(offsets)
