"""TorchRec in one process: 26 tables in a fused collection, row-wise Adagrad in its backward."""

from __future__ import annotations

import fbgemm_gpu
import torch
import torchrec
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
from torch_tower import Tower, train
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.optim import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

NAMES = [f"C{slot + 1}" for slot in range(SLOTS)]


def make_tables() -> FusedEmbeddingBagCollection:
    return FusedEmbeddingBagCollection(
        [
            torchrec.EmbeddingBagConfig(
                name=name, embedding_dim=DIM, num_embeddings=SLOT_IDS, feature_names=[name]
            )
            for name in NAMES
        ],
        optimizer_type=RowWiseAdagrad,
        optimizer_kwargs={"lr": SPARSE_LR, "eps": SPARSE_EPS},
        device=torch.device("cpu"),
    )


def make_step(samples: Samples, size: int) -> Step:
    tables, tower = make_tables(), Tower()
    optimizer = tower.optimizer()
    one_each = torch.ones(size * SLOTS, dtype=torch.int32)
    batches = []
    for part in samples.batches(size):
        by_slot = torch.from_numpy(part.ids.T.reshape(-1).copy())
        ids = KeyedJaggedTensor(keys=NAMES, values=by_slot, lengths=one_each)
        batches.append((ids, torch.from_numpy(part.dense), torch.from_numpy(part.labels)))

    def step(number: int) -> torch.Tensor:
        ids, dense, labels = batches[number % len(batches)]
        return train(tower.loss(tables(ids).values(), dense, labels), optimizer)

    return step


def main() -> None:
    options = arguments(__doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rate, loss = measure(make_step(Samples.load(options.data), options.batch), options)
    versions = {part.__name__: part.__version__ for part in (torchrec, fbgemm_gpu, torch)}
    answer(rate, loss, options, versions)


if __name__ == "__main__":
    main()
