"""Rows of sparse tables on their way into a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from heterps.errors import ModelError
from heterps.models import _native


@dataclass(frozen=True)
class Rows:
    """``values`` [distinct, dim] holds each row once, ``inverse`` [asked] says which of them each
    id that the layer asked for has. Gradients arrive in ``values.grad``, summed per row."""

    values: Tensor
    inverse: Tensor


class RowSource(Protocol):
    """Where rows come from: a table in this process, or parameter servers."""

    def pull(self, table: str, ids: Tensor) -> Tensor:
        """The rows of distinct ids, in their order: floating [ids, dim]."""
        ...


@dataclass(frozen=True)
class Asked:
    """The distinct ids that a layer asked for, and the rows that it got."""

    ids: Tensor
    rows: Rows


def ask(source: RowSource, table: str, ids: Tensor, training: bool = True) -> Asked:
    """Each distinct row once. In training the rows collect gradients."""
    if ids.dtype != torch.int64 or ids.dim() != 1:
        problem = f"expected int64 in one dimension, got {ids.dtype} {list(ids.shape)}"
        raise ModelError(f"ids for table '{table}'", problem)
    distinct, inverse = distinct_of(ids)
    values = source.pull(table, distinct).detach().requires_grad_(training)
    return Asked(distinct, Rows(values, inverse))


def distinct_of(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Each id once, and which of them stands at each place of ``ids``. On the CPU they come in
    order of first occurrence."""
    if ids.device.type != "cpu":
        distinct, inverse = torch.unique(ids, return_inverse=True)
        return distinct, inverse
    distinct, inverse = torch.empty_like(ids), torch.empty_like(ids)
    count = _native.find_distinct(_array(ids), distinct.numpy(), inverse.numpy())
    return distinct[:count], inverse


def expanded(values: Tensor, inverse: Tensor) -> Tensor:
    """``values[inverse]``. Torch uses several threads where there are some: two take 0.42 ms for
    the 0.70 of our own call (4096 × 26 ids), which uses one, and fetches rows ahead."""
    if not _is_plain(values) or torch.get_num_threads() > 1:
        return values.index_select(0, inverse)
    out = values.new_empty(len(inverse), values.shape[1])
    _native.expand(_array(values), _array(inverse), out.numpy())
    return out


def summed(inverse: Tensor, grads: Tensor, distinct: int) -> Tensor:
    """The rows of ``grads`` added up by ``inverse``, in their order."""
    if not _is_plain(grads):
        sums = grads.new_zeros(distinct, grads.shape[1])
        return sums.scatter_add_(0, inverse[:, None].expand_as(grads), grads)
    sums = grads.new_empty(distinct, grads.shape[1])
    _native.sum_by(_array(inverse), _array(grads), sums.numpy())
    return sums


def _is_plain(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype == torch.float32


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().contiguous().numpy()
    return array


def rows_of(asked: Mapping[str, Asked]) -> dict[str, Rows]:
    """What ``Chain.forward`` takes."""
    return {layer: entry.rows for layer, entry in asked.items()}
