"""Rows of a sparse table, laid out by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from heterps.errors import InputError, ModelError, UnknownNameError
from heterps.models.batch import MAIN, Batch, offsets_name
from heterps.models.context import Context
from heterps.models.layers import RowLayer
from heterps.models.rows import Rows, expanded, summed

Pooled = Literal["sum", "mean"]
Pooling = Literal["sum", "mean", "none"]


class SparseEmbedding(RowLayer):
    """The rows of one or many slots, side by side in the order of ``slots``: [n, slots × dim].

    A slot with several values a sample is pooled; one without any gives zeros. ``pooling`` is for
    all slots, or "sum" and "mean" by slot, "sum" where none is named. With "none" nothing is
    pooled: single-valued slots give [n, slots, dim], and one slot with several values
    [values, dim] with ``<output>.offsets``.
    """

    draws = False

    def __init__(
        self,
        slots: Sequence[str],
        dim: int,
        table: str = "default",
        pooling: Pooling | Mapping[str, Pooled] = "sum",
        output: str = MAIN,
    ) -> None:
        super().__init__(table, dim)
        if isinstance(slots, str) or not slots:
            raise InputError("slots", f"expected a list of one or more names, got {slots!r}")
        if output in slots:
            raise InputError("output", f"'{output}' is a slot, whose ids would be lost")
        self.slots = tuple(slots)
        self.pools = pooling != "none"
        self.means = tuple(_is_mean(pooling, slot) for slot in slots)
        self.output = output

    def ids(self, batch: Batch, context: Context) -> Tensor:
        """Sample by sample if all slots are single-valued, otherwise slot by slot."""
        columns = [batch[slot] for slot in self.slots]
        if self._has_bags(batch):
            return torch.cat(columns)
        return columns[0] if len(columns) == 1 else torch.stack(columns, dim=1).view(-1)

    def forward(self, batch: Batch, rows: Rows, context: Context) -> Batch:
        if self._has_bags(batch):
            return self._pooled(batch, rows, context)
        expanded = expand(rows).view(len(batch[self.slots[0]]), len(self.slots), self.dim)
        return {self.output: expanded.flatten(1) if self.pools else expanded}

    def _pooled(self, batch: Batch, rows: Rows, context: Context) -> Batch:
        if not self.pools:
            if len(self.slots) > 1:
                problem = "slots with several values a sample need a layer each to stay unpooled"
                raise ModelError(f"layer '{context.layer}'", problem)
            offsets = batch[offsets_name(self.slots[0])]
            return {self.output: expand(rows), offsets_name(self.output): offsets}
        offsets = self._offsets(batch, context)
        samples = (len(offsets) - 1) // len(self.slots)
        pooled = expand(rows, offsets, self._shares(offsets, samples, rows.values.dtype))
        by_sample = pooled.view(len(self.slots), samples, self.dim).transpose(0, 1)
        return {self.output: by_sample.reshape(samples, len(self.slots) * self.dim)}

    def _shares(self, offsets: Tensor, samples: int, dtype: torch.dtype) -> Tensor | None:
        """What a row of each bag counts, if not all count wholly."""
        if not any(self.means):
            return None
        shares = 1 / offsets.diff().clamp(min=1).to(dtype)
        by_slot = shares.view(len(self.slots), samples)
        for number, mean in enumerate(self.means):
            if not mean:
                by_slot[number] = 1
        return shares

    def _has_bags(self, batch: Batch) -> bool:
        return any(offsets_name(slot) in batch for slot in self.slots)

    def _offsets(self, batch: Batch, context: Context) -> Tensor:
        """Where the bag of each (slot, sample) begins among all ids, and where the last ends."""
        parts, base = [], 0
        for slot in self.slots:
            count = len(batch[slot])
            single = offsets_name(slot) not in batch
            offsets = _ones(batch[slot]) if single else batch[offsets_name(slot)]
            parts.append(offsets[:-1] + base)
            base += count
        if len({len(part) for part in parts}) > 1:
            counts = ", ".join(f"{s} {len(p)}" for s, p in zip(self.slots, parts, strict=True))
            raise ModelError(f"layer '{context.layer}'", f"slots differ in samples: {counts}")
        return torch.cat([*parts, parts[0].new_tensor([base])])


def _is_mean(pooling: Pooling | Mapping[str, Pooled], slot: str) -> bool:
    """Raises UnknownNameError."""
    by_slot = isinstance(pooling, Mapping)
    own = pooling.get(slot, "sum") if isinstance(pooling, Mapping) else pooling
    known = get_args(Pooled if by_slot else Pooling)
    if own not in known:
        raise UnknownNameError("pooling", "pooling", str(own), known)
    return own == "mean"


def _ones(ids: Tensor) -> Tensor:
    """Offsets of bags that hold one id each."""
    return torch.arange(len(ids) + 1, device=ids.device)


def expand(rows: Rows, offsets: Tensor | None = None, shares: Tensor | None = None) -> Tensor:
    """A row for each id asked for; with ``offsets`` the sum over each bag of them, times its share
    if there are any."""
    apply: Any = _Expand.apply
    expanded: Tensor = apply(rows.values, rows.inverse, offsets, shares)
    return expanded


class _Expand(torch.autograd.Function):
    """Expansion and pooling in one step, forward and backward, without an intermediate that
    autograd would keep. Gradients of a row are summed in the order of the ids."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, inverse: Tensor, offsets: Tensor | None, shares: Tensor | None
    ) -> Tensor:
        shares = None if shares is None else shares[:, None]
        ctx.save_for_backward(inverse, offsets, shares)
        ctx.distinct = len(values)
        if offsets is None:
            return expanded(values, inverse)
        pooled = nn.functional.embedding_bag(
            inverse, values, offsets, mode="sum", include_last_offset=True
        )
        return pooled if shares is None else pooled.mul_(shares)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,) = grads
        inverse, offsets, shares = ctx.saved_tensors
        if offsets is not None:
            grad = grad if shares is None else grad * shares
            grad = grad.repeat_interleave(offsets.diff(), dim=0, output_size=len(inverse))
        return summed(inverse, grad, ctx.distinct), None, None, None
