"""The models of the zoo in sizes for tests, and batches for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heterps.models.chain import Chain
from heterps.models.context import seeded
from heterps.models.local_rows import LocalTable
from heterps.models.zoo import ZOO

_SLOTS = ("C1", "C2", "C3")
_DENSE = 4
TINY: dict[str, dict[str, Any]] = {
    "ctrdnn": {"slots": _SLOTS, "dense": _DENSE, "dim": 3, "hidden": (8, 6, 5, 4), "dropout": 0.2},
    "matchnet": {"dense": _DENSE, "dim": 3, "hidden": (6, 5)},
    "nce": {"vocabulary": 50, "dim": 4, "hidden": (6,), "negatives": 7, "candidates": 20},
    "two_emb": {"slots": _SLOTS, "dense": _DENSE, "wide_dim": 5, "narrow_dim": 2, "hidden": (6, 4)},
}


def make_tiny(name: str, seed: int = 0, dtype: torch.dtype = torch.float32, **args: Any) -> Chain:
    """A model of the zoo with the same first weights for the same seed."""
    with seeded(seed):
        return ZOO[name](**TINY[name] | args).to(dtype)


def make_tables(
    chain: Chain, rule: str = "sgd", lr: float = 0.1, dtype: torch.dtype = torch.float32
) -> dict[str, LocalTable]:
    """Tables for a chain; rows start large enough to matter."""
    return {
        name: LocalTable(dim, rule, lr, scale=0.5, dtype=dtype)
        for name, dim in chain.tables.items()
    }


def make_batch(
    samples: int, seed: int = 0, ids: int = 20, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """A batch that serves every model of the zoo; ids repeat, bags may be empty."""
    generator = torch.Generator().manual_seed(seed)
    batch = {
        "label": (torch.rand(samples, generator=generator) < 0.3).to(dtype),
        "dense": torch.rand(samples, _DENSE, generator=generator).to(dtype),
    }
    for slot in (*_SLOTS, "user", "item"):
        batch[slot] = torch.randint(ids, (samples,), generator=generator) - ids // 2
    lengths = torch.randint(4, (samples,), generator=generator)
    batch["history.offsets"] = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    batch["history"] = torch.randint(ids, (int(lengths.sum()),), generator=generator) - ids // 2
    return batch


def named_gradients(chain: Chain) -> Mapping[str, Tensor]:
    """A copy of the gradient of each parameter; zeros where it has none."""
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for name, weight in chain.named_parameters()
    }
