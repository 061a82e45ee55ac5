"""Does an item match a user: two towers and the cosine between them. 16 layers.

The user's tower sees single-valued slots and a list of past items; the item's tower shares the
table with it, as the past items are items too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from heterps.models.chain import Chain
from heterps.models.embedding import Pooled, SparseEmbedding
from heterps.models.layers import Apply, Concat, Cosine, LogLoss, Pool

USER, HISTORY, ITEM = "user_tower", "history_rows", "item_tower"


def build(
    user: Sequence[str] = ("user",),
    history: str = "history",
    item: Sequence[str] = ("item",),
    dense: int = 0,
    dim: int = 16,
    hidden: Sequence[int] = (128, 64),
    table: str = "default",
    pooling: Mapping[str, Pooled] | None = None,
) -> Chain:
    """``dense`` columns belong to the user; the last of ``hidden`` is the width of the match.
    ``pooling`` is by slot; the history's is "mean" if none is named."""
    own = pooling or {}
    user_width = (len(user) + 1) * dim + dense
    joined = [USER, HISTORY, *(["dense"] if dense else [])]
    return Chain(
        [
            ("user_embedding", SparseEmbedding(user, dim, table, own, USER)),
            ("history_embedding", SparseEmbedding([history], dim, table, "none", HISTORY)),
            ("history_pool", Pool(HISTORY, own.get(history, "mean"))),
            ("user_concat", Concat(joined, USER)),
            *_tower("user", USER, user_width, hidden),
            ("item_embedding", SparseEmbedding(item, dim, table, own, ITEM)),
            *_tower("item", ITEM, len(item) * dim, hidden),
            ("cosine", Cosine(USER, ITEM)),
            ("calibrate", _calibration()),
            ("loss", LogLoss()),
        ]
    )


def _tower(
    prefix: str, name: str, width: int, hidden: Sequence[int]
) -> Iterator[tuple[str, nn.Module]]:
    for number, size in enumerate(hidden, start=1):
        yield f"{prefix}_fc{number}", Apply(nn.Linear(width, size), name)
        if number < len(hidden):
            yield f"{prefix}_norm{number}", Apply(nn.LayerNorm(size), name)
            yield f"{prefix}_relu{number}", Apply(nn.ReLU(), name)
        width = size


def _calibration() -> nn.Linear:
    """From a cosine in [-1, 1] to a logit; it starts so that a better match is likelier."""
    linear = nn.Linear(1, 1)
    nn.init.constant_(linear.weight, 5.0)
    nn.init.zeros_(linear.bias)
    return linear
