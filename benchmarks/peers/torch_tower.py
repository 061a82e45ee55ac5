"""The dense part of the model in torch, and the batches as tensors, for the peers on torch."""

from __future__ import annotations

import torch
from contract import DENSE, DENSE_LR, DIM, HIDDEN, SLOTS
from torch import Tensor, nn


class Tower(nn.Sequential):
    """Embeddings and dense values in, the mean log-loss out."""

    def __init__(self) -> None:
        width, layers = SLOTS * DIM + DENSE, []
        for size in HIDDEN:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        super().__init__(*layers, nn.Linear(width, 1))

    def loss(self, embeddings: Tensor, dense: Tensor, labels: Tensor) -> Tensor:
        logits = self(torch.cat([embeddings, dense], dim=1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=DENSE_LR, fused=True)


def small_rows(rows: int) -> Tensor:
    """Rows for a table to begin with; a million random ones over and over, which is soon done."""
    block = torch.empty(min(rows, 1_000_000), DIM).uniform_(-0.01, 0.01)
    return block.repeat(-(-rows // len(block)), 1)[:rows].contiguous()


def train(loss: Tensor, *optimizers: torch.optim.Optimizer) -> Tensor:
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.detach()
