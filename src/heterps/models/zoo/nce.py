"""Which item comes next: a sampled softmax over a large vocabulary, whose output rows live in a
sparse table like the input rows. 5 layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from heterps.models.chain import Chain
from heterps.models.embedding import Pooled, SparseEmbedding
from heterps.models.sampled import Distribution, SampledEmbedding, SampledSoftmax, Sampler


def build(
    history: str = "history",
    target: str = "item",
    vocabulary: int = 1_000_000,
    dim: int = 32,
    hidden: Sequence[int] = (),
    negatives: int = 64,
    candidates: int = 1000,
    distribution: Distribution = "uniform",
    table: str = "default",
    output_table: str = "output",
    pooling: Mapping[str, Pooled] | None = None,
) -> Chain:
    """``history`` is a slot of past items, ``target`` the item to tell. ``pooling`` is by slot; the
    history's is "mean" if none is named."""
    sampler = Sampler(vocabulary, distribution)
    layers: list[tuple[str, nn.Module]] = [
        ("embedding", SparseEmbedding([history], dim, table, {history: "mean", **(pooling or {})}))
    ]
    width = dim
    for number, size in enumerate(hidden, start=1):
        layers += [(f"fc{number}", nn.Linear(width, size)), (f"relu{number}", nn.ReLU())]
        width = size
    drawn = SampledEmbedding(target, sampler, dim, output_table, negatives, candidates)
    layers += [
        ("project", nn.Linear(width, dim)),
        ("norm", nn.LayerNorm(dim)),
        ("candidates", drawn),
        ("softmax", SampledSoftmax(sampler)),
    ]
    return Chain(layers)
