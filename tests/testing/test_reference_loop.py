"""The loop that plans are compared with, compared itself with torch alone."""

import pytest
import torch
from torch import nn

from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.embedding import SparseEmbedding
from heterps.models.layers import Concat, LogLoss
from heterps.models.local_rows import LocalTable
from heterps.models.rows import rows_of
from heterps.models.zoo import ZOO
from heterps.ps import SparseTable, Uniform
from heterps.testing.models import make_batch, make_tables, make_tiny
from heterps.testing.reference_loop import reference_loop

VOCABULARY = 20


def make_chain(dtype):
    torch.manual_seed(3)
    layers = [
        ("embedding", SparseEmbedding(["a", "b"], 3)),
        ("join", Concat(["x", "dense"])),
        ("fc", nn.Linear(8, 4)),
        ("relu", nn.ReLU()),
        ("out", nn.Linear(4, 1)),
        ("loss", LogLoss()),
    ]
    return Chain(layers).to(dtype)


def make_batches(dtype, sizes=((5, 3), (4, 0), (0, 0), (2, 6))):
    generator = torch.Generator().manual_seed(1)
    return [[micro_batch(generator, n, dtype) for n in batch] for batch in sizes]


def micro_batch(generator, n, dtype):
    return {
        "dense": torch.rand(n, 2, generator=generator).to(dtype),
        "a": torch.randint(VOCABULARY, (n,), generator=generator),
        "b": torch.randint(VOCABULARY, (n,), generator=generator),
        "label": (torch.rand(n, generator=generator) < 0.4).to(dtype),
    }


def plain_torch(dtype, optimizers, batches):
    """The same model written without any part of ours but its initial weights."""
    first = LocalTable(3, dtype=dtype).pull(torch.arange(VOCABULARY))
    rows = nn.Embedding.from_pretrained(first, freeze=False, sparse=False)
    dense = nn.Sequential(*[layer for _, layer in make_chain(dtype).layers[2:5]])
    steps = [make(part.parameters()) for make, part in zip(optimizers, (rows, dense), strict=True)]
    losses = []
    for batch in batches:
        merged = {name: torch.cat([one[name] for one in batch]) for name in batch[0]}
        x = torch.cat([rows(merged["a"]), rows(merged["b"]), merged["dense"]], dim=1)
        logits = dense(x)[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(
            logits, merged["label"], reduction="sum"
        ) / max(len(logits), 1)
        for step in steps:
            step.zero_grad(set_to_none=False)
        loss.backward()
        for step in steps:
            step.step()
        losses.append(loss.item())
    return losses, rows.weight.detach(), dense.state_dict()


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_it_trains_as_torch_does_on_whole_batches(rule, dtype, close):
    optimizers = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
    batches = make_batches(dtype) * 3
    expected, weight, state = plain_torch(
        dtype,
        [lambda p: optimizers[rule](p, lr=0.5), lambda p: torch.optim.Adam(p, lr=0.01)],
        batches,
    )
    chain = make_chain(dtype)
    table = LocalTable(3, rule, 0.5, dtype=dtype)
    losses = reference_loop(
        chain, batches, {"default": table}, lambda p: torch.optim.Adam(p, lr=0.01)
    )
    assert losses == pytest.approx(expected, rel=close)
    rows = table.pull(torch.arange(VOCABULARY))
    torch.testing.assert_close(rows, weight, rtol=close, atol=close)
    mine = [value for name, value in chain.state_dict().items()]
    for one, other in zip(mine, state.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=close, atol=close)


def test_twice_the_same_is_the_same_to_the_bit():
    found = []
    for _ in range(2):
        chain, table = make_chain(torch.float32), LocalTable(3)
        batches = make_batches(torch.float32)
        losses = reference_loop(
            chain, batches, {"default": table}, lambda p: torch.optim.SGD(p, lr=0.1)
        )
        found.append((losses, table.pull(torch.arange(VOCABULARY)).tolist()))
    assert found[0] == found[1]


def test_every_micro_batch_has_its_number():
    seen = []

    class Look(LogLoss):
        def forward(self, batch, context):
            seen.append((context.seed, context.micro_batch, context.training))
            return super().forward(batch, context)

    chain = Chain([("embedding", SparseEmbedding(["a"], 1)), ("loss", Look())])
    batches = make_batches(torch.float32)
    reference_loop(
        chain, batches, {"default": LocalTable(1)}, torch.optim.SGD, seed=9, first_micro_batch=4
    )
    assert seen == [(9, number, True) for number in range(4, 12)]


class ServerRows:
    """Rows and commits of the parameter server's own tables."""

    def __init__(self, chain, rule, batches):
        self.tables = {
            name: SparseTable(dim, rule, lr=0.1, initial=Uniform(0.5), threads=1)
            for name, dim in chain.tables.items()
        }
        layers = [layer.table for layer in chain.row_layers.values()]
        for name, table in self.tables.items():
            for number, batch in enumerate(batches):
                table.announce(number, len(batch) * layers.count(name))

    def pull(self, table, ids):
        return torch.from_numpy(self.tables[table].pull(ids))


@pytest.mark.parametrize("rule", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_with_the_servers_tables_every_loss_and_row_is_the_same_to_the_bit(name, rule):
    batches = [[make_batch(n, seed=10 * b + n) for n in (5, 0, 3)] for b in range(8)]

    def make_optimizer(weights):
        return torch.optim.SGD(weights, lr=0.05)

    chain = make_tiny(name)
    tables = make_tables(chain, rule)
    expected = reference_loop(chain, batches, tables, make_optimizer, seed=4)

    served = make_tiny(name)
    source = ServerRows(served, rule, batches)
    optimizer, losses = make_optimizer(served.parameters()), []
    for number, batch in enumerate(batches):
        optimizer.zero_grad()
        total = 0.0
        # The order in which parts arrive must not matter: dense gradients are summed in ascending
        # order, those of rows wait for the commit.
        parts = []
        for at, micro_batch in enumerate(batch, start=3 * number):
            context = Context(4, at)
            asked = served.ask(micro_batch, source, context)
            share = len(micro_batch["label"]) / 8
            loss = served(micro_batch, rows_of(asked), context)["loss"]
            (loss * share).backward()
            total += loss.item() * share
            parts += [((at, served.names.index(layer)), layer, asked[layer]) for layer in asked]
        optimizer.step()
        for part, layer, entry in reversed(parts):
            table = source.tables[served.row_layers[layer].table]
            table.accumulate(number, part, entry.ids, entry.rows.values.grad)
        losses.append(total)
    assert losses == expected
    for table_name, table in tables.items():
        ids = torch.tensor(sorted(table.rows))
        assert len(source.tables[table_name]) == len(ids)
        assert torch.equal(source.pull(table_name, ids), table.pull(ids))
