"""Training in one process, in plain sight: what every plan's result is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from heterps.models.batch import LOSS, Batch, samples_of
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.local_rows import LocalRows, LocalTable
from heterps.models.rows import Asked, rows_of

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def reference_loop(
    chain: Chain,
    batches: Iterable[Sequence[Batch]],
    tables: Mapping[str, LocalTable],
    make_optimizer: MakeOptimizer,
    *,
    seed: int = 0,
    first_micro_batch: int = 0,
) -> list[float]:
    """Train ``chain`` and ``tables`` on batches of micro-batches; gives the loss of each batch.

    A micro-batch's mean loss counts by its share of the batch's samples. All parameters change
    once a batch, after its last micro-batch. In float64 if chain, tables and data are.
    """
    weights = list(chain.trained.values())
    optimizer = make_optimizer(weights) if weights else None
    source = LocalRows(tables)
    number, losses = first_micro_batch, []
    for batch in batches:
        chain.zero_grad(set_to_none=False)
        samples = sum(samples_of(micro_batch) for micro_batch in batch)
        total = 0.0
        for micro_batch in batch:
            context = Context(seed, number, training=True)
            asked = chain.ask(micro_batch, source, context)
            loss = chain(micro_batch, rows_of(asked), context)[LOSS]
            share = samples_of(micro_batch) / max(samples, 1)
            _backward(loss * share)
            _accumulate(chain, source, asked, number)
            total += float(loss.detach()) * share
            number += 1
        if optimizer is not None:
            optimizer.step()
        for table in source.tables.values():
            table.commit()
        losses.append(total)
    return losses


def _backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def _accumulate(
    chain: Chain, source: LocalRows, asked: Mapping[str, Asked], micro_batch: int
) -> None:
    """Hand the gradients of rows to their tables."""
    for name, entry in asked.items():
        grad = entry.rows.values.grad
        if grad is not None:
            table = source.tables[chain.row_layers[name].table]
            table.accumulate((micro_batch, chain.names.index(name)), entry.ids, grad)
