"""Rows of sparse tables on their way into a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from heterps.errors import ModelError


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
    """Each id once, and which of them stands at each place of ``ids``."""
    distinct, inverse = torch.unique(ids, return_inverse=True)
    return distinct, inverse


def rows_of(asked: Mapping[str, Asked]) -> dict[str, Rows]:
    """What ``Chain.forward`` takes."""
    return {layer: entry.rows for layer, entry in asked.items()}
