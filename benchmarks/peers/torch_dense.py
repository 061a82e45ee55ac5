"""The dense part alone in torch: forward, backward and fused Adam on embeddings that are there.

What any system could reach whose sparse part costs nothing; the embeddings' gradient is computed.
"""

from __future__ import annotations

import torch
from contract import DIM, SLOT_IDS, SLOTS, Samples, Step, answer, arguments, measure
from torch_tower import Tower, small_rows, train


def make_step(samples: Samples, size: int, distinct: int = 8) -> Step:
    """Only ``distinct`` batches, since embeddings are larger than ids."""
    tower, rows = Tower(), small_rows(SLOT_IDS)
    optimizer = tower.optimizer()
    batches = []
    for part in samples.batches(size)[:distinct]:
        embeddings = rows[torch.from_numpy(part.ids)].view(size, SLOTS * DIM).requires_grad_()
        batches.append((embeddings, torch.from_numpy(part.dense), torch.from_numpy(part.labels)))

    def step(number: int) -> torch.Tensor:
        embeddings, dense, labels = batches[number % len(batches)]
        embeddings.grad = None
        return train(tower.loss(embeddings, dense, labels), optimizer)

    return step


def main() -> None:
    options = arguments(__doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rate, loss = measure(make_step(Samples.load(options.data), options.batch), options)
    answer(rate, loss, options, {"torch": torch.__version__})


if __name__ == "__main__":
    main()
