"""Rows of a sparse table, laid out by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from heterps.errors import InputError, ModelError, UnknownNameError
from heterps.models.batch import MAIN, Batch, offsets_name
from heterps.models.context import Context
from heterps.models.layers import RowLayer
from heterps.models.rows import Rows, expanded, summed

Pooling = Literal["sum", "mean", "none"]


class SparseEmbedding(RowLayer):
    """The rows of one or many slots, side by side in the order of ``slots``: [n, slots × dim].

    A slot with several values a sample is pooled; one without any gives zeros. With ``pooling``
    "none" nothing is: single-valued slots give [n, slots, dim], and one slot with several values
    [values, dim] with ``<output>.offsets``.
    """

    draws = False

    def __init__(
        self,
        slots: Sequence[str],
        dim: int,
        table: str = "default",
        pooling: Pooling = "sum",
        output: str = MAIN,
    ) -> None:
        super().__init__(table, dim)
        if isinstance(slots, str) or not slots:
            raise InputError("slots", f"expected a list of one or more names, got {slots!r}")
        if pooling not in get_args(Pooling):
            raise UnknownNameError("pooling", "pooling", str(pooling), get_args(Pooling))
        if output in slots:
            raise InputError("output", f"'{output}' is a slot, whose ids would be lost")
        self.slots = tuple(slots)
        self.pooling = pooling
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
        return {self.output: expanded if self.pooling == "none" else expanded.flatten(1)}

    def _pooled(self, batch: Batch, rows: Rows, context: Context) -> Batch:
        if self.pooling == "none":
            if len(self.slots) > 1:
                problem = "slots with several values a sample need a layer each to stay unpooled"
                raise ModelError(f"layer '{context.layer}'", problem)
            offsets = batch[offsets_name(self.slots[0])]
            return {self.output: expand(rows), offsets_name(self.output): offsets}
        offsets = self._offsets(batch, context)
        pooled = expand(rows, offsets, self.pooling == "mean")
        samples = (len(offsets) - 1) // len(self.slots)
        by_sample = pooled.view(len(self.slots), samples, self.dim).transpose(0, 1)
        return {self.output: by_sample.reshape(samples, len(self.slots) * self.dim)}

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


def _ones(ids: Tensor) -> Tensor:
    """Offsets of bags that hold one id each."""
    return torch.arange(len(ids) + 1, device=ids.device)


def expand(rows: Rows, offsets: Tensor | None = None, mean: bool = False) -> Tensor:
    """A row for each id asked for; with ``offsets`` the sum or mean over each bag of them."""
    apply: Any = _Expand.apply
    expanded: Tensor = apply(rows.values, rows.inverse, offsets, mean)
    return expanded


class _Expand(torch.autograd.Function):
    """Expansion and pooling in one step, forward and backward, without an intermediate that
    autograd would keep. Gradients of a row are summed in the order of the ids."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, inverse: Tensor, offsets: Tensor | None, mean: bool
    ) -> Tensor:
        ctx.save_for_backward(inverse, offsets)
        ctx.distinct, ctx.mean = len(values), mean
        if offsets is None:
            return expanded(values, inverse)
        mode = "mean" if mean else "sum"
        return nn.functional.embedding_bag(
            inverse, values, offsets, mode=mode, include_last_offset=True
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,) = grads
        inverse, offsets = ctx.saved_tensors
        if offsets is not None:
            counts = offsets.diff()
            if ctx.mean:
                grad = grad / counts.clamp(min=1)[:, None]
            grad = grad.repeat_interleave(counts, dim=0, output_size=len(inverse))
        return summed(inverse, grad, ctx.distinct), None, None, None
