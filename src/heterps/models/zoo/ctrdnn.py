"""Click-through rate by a deep network over one embedding: 16 layers as it stands.

``hidden=(400, 400, 400), norm=False`` is the model of the benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from heterps.models.chain import Chain
from heterps.models.embedding import Pooled, SparseEmbedding
from heterps.models.layers import Concat, Dropout, LogLoss

SLOTS = tuple(f"C{number}" for number in range(1, 27))


def build(
    slots: Sequence[str] = SLOTS,
    dense: int = 13,
    dim: int = 16,
    hidden: Sequence[int] = (512, 256, 128, 64),
    norm: bool = True,
    dropout: float = 0.0,
    table: str = "default",
    pooling: Pooled | Mapping[str, Pooled] = "sum",
) -> Chain:
    """``dense`` is the number of dense columns."""
    layers: list[tuple[str, nn.Module]] = [
        ("embedding", SparseEmbedding(slots, dim, table, pooling)),
        ("concat", Concat(["x", "dense"] if dense else ["x"])),
    ]
    width = len(slots) * dim + dense
    for number, size in enumerate(hidden, start=1):
        layers.append((f"fc{number}", nn.Linear(width, size)))
        if norm:
            layers.append((f"norm{number}", nn.LayerNorm(size)))
        layers.append((f"relu{number}", nn.ReLU()))
        if dropout:
            layers.append((f"dropout{number}", Dropout(dropout)))
        width = size
    layers += [("out", nn.Linear(width, 1)), ("loss", LogLoss())]
    return Chain(layers)
