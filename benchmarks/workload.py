"""The ids that benchmarks ask for, reproducible from a seed."""

from __future__ import annotations

import numpy as np
import torch

BATCH, SLOTS, SLOT_IDS = 4096, 26, 1_000_000


def uniform(rows: int, count: int, batches: int, seed: int = 1) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(0, rows, count)) for _ in range(batches)]


def criteo_like(batches: int) -> list[torch.Tensor]:
    """[BATCH x SLOTS] ids: slot s draws Zipf(1.05 … 1.2) from a million ids of its own."""
    columns = [
        torch.stack(list(zipf_batches(exponent, SLOT_IDS, BATCH, batches, slot))) + slot * SLOT_IDS
        for slot, exponent in enumerate(np.linspace(1.05, 1.2, SLOTS))
    ]
    return [ids.reshape(-1).contiguous() for ids in torch.stack(columns, dim=2)]


def zipf_batches(
    exponent: float, rows: int, count: int, batches: int, seed: int = 0
) -> list[torch.Tensor]:
    """Bounded Zipf; which id is how frequent is random, as it is for hashed features."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    names = rng.permutation(rows)
    return [
        torch.from_numpy(names[np.searchsorted(shares, rng.random(count) * shares[-1])])
        for _ in range(batches)
    ]
