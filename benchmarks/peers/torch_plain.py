"""Plain torch in one process: one merged EmbeddingBag with sparse gradients, sparse Adagrad."""

from __future__ import annotations

import torch
from contract import (
    DIM,
    SLOT_IDS,
    SLOTS,
    SPARSE_EPS,
    SPARSE_LR,
    Samples,
    Step,
    answer,
    arguments,
    measure,
)
from torch import nn
from torch_tower import Tower, small_rows, train


def make_step(samples: Samples, size: int) -> Step:
    table = nn.EmbeddingBag.from_pretrained(
        small_rows(SLOTS * SLOT_IDS), freeze=False, mode="sum", sparse=True
    )
    tower = Tower()
    # Its accumulator has a number per value, not per row: torch has no row-wise Adagrad.
    sparse = torch.optim.Adagrad(table.parameters(), lr=SPARSE_LR, eps=SPARSE_EPS)
    optimizers = (sparse, tower.optimizer())
    offsets = torch.arange(size * SLOTS)
    batches = [
        tuple(map(torch.from_numpy, (part.merged_ids.reshape(-1), part.dense, part.labels)))
        for part in samples.batches(size)
    ]

    def step(number: int) -> torch.Tensor:
        ids, dense, labels = batches[number % len(batches)]
        embeddings = table(ids, offsets).view(size, SLOTS * DIM)
        return train(tower.loss(embeddings, dense, labels), *optimizers)

    return step


def main() -> None:
    options = arguments(__doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rate, loss = measure(make_step(Samples.load(options.data), options.batch), options)
    answer(rate, loss, options, {"torch": torch.__version__})


if __name__ == "__main__":
    main()
