"""Click-through rate over two embeddings: wide rows for some slots, narrow ones from a table of
their own for the others. 10 layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from heterps.models.chain import Chain
from heterps.models.embedding import Pooled, SparseEmbedding
from heterps.models.layers import Concat, LogLoss

SLOTS = tuple(f"C{number}" for number in range(1, 27))


def build(
    slots: Sequence[str] = SLOTS,
    dense: int = 13,
    wide_slots: int | None = None,
    wide_dim: int = 32,
    narrow_dim: int = 8,
    hidden: Sequence[int] = (256, 64),
    wide_table: str = "default",
    narrow_table: str = "narrow",
    pooling: Pooled | Mapping[str, Pooled] = "sum",
) -> Chain:
    """The first ``wide_slots`` slots (half of them if not said) have wide rows."""
    split = (len(slots) + 1) // 2 if wide_slots is None else wide_slots
    wide, narrow = slots[:split], slots[split:]
    width = len(wide) * wide_dim + len(narrow) * narrow_dim + dense
    layers: list[tuple[str, nn.Module]] = [
        ("wide", SparseEmbedding(wide, wide_dim, wide_table, pooling, "wide_rows")),
        ("narrow", SparseEmbedding(narrow, narrow_dim, narrow_table, pooling, "narrow_rows")),
        ("concat", Concat(["wide_rows", "narrow_rows", *(["dense"] if dense else [])])),
        ("norm", nn.LayerNorm(width)),
    ]
    for number, size in enumerate(hidden, start=1):
        layers += [(f"fc{number}", nn.Linear(width, size)), (f"relu{number}", nn.ReLU())]
        width = size
    layers += [("out", nn.Linear(width, 1)), ("loss", LogLoss())]
    return Chain(layers)
