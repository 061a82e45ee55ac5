"""Tables in one process give what the parameter server gives, to the bit."""

import numpy as np
import pytest
import torch

from heterps.errors import InputError, UnknownNameError
from heterps.models.local_rows import LocalRows, LocalTable
from heterps.ps.initial import INITIALIZERS
from heterps.ps.rules import RULES
from heterps.testing.tables import make_store, pull

IDS = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 12345])


@pytest.mark.parametrize("dim", [1, 3, 16])
@pytest.mark.parametrize("initial", ["zeros", "constant", "uniform", "normal"])
@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_initial_rows_are_those_of_the_server(initial, seed, dim):
    scale = 0.0 if initial == "zeros" else 0.3
    table = LocalTable(dim, initial=initial, scale=scale, seed=seed)
    store = make_store("native", dim, initial=INITIALIZERS[initial](scale), seed=seed)
    assert table.pull(IDS).numpy().tobytes() == pull(store, IDS.numpy()).tobytes()
    assert len(table) == 0


@pytest.mark.parametrize("kind", ["reference", "native"])
@pytest.mark.parametrize("accumulator", [0.0, 0.1])
@pytest.mark.parametrize("rule", ["sgd", "adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("dim", [1, 5, 16])
def test_pushes_and_commits_change_rows_as_on_the_server(rule, dim, accumulator, kind):
    options = {} if rule == "sgd" else {"initial_accumulator": accumulator}
    store = make_store(kind, dim, RULES[rule](lr=0.3, **options), seed=5)
    table = LocalTable(dim, rule, 0.3, scale=0.1, seed=5, initial_accumulator=accumulator)
    rng = np.random.default_rng(dim)
    for batch in range(4):
        parts = [(2, 1), (0, 3), (2, 0), (1, 1)]
        store.announce(batch, len(parts), None)
        for micro_batch, layer in parts:
            ids = rng.integers(0, 9, 12)
            grads = rng.normal(size=(12, dim)).astype(np.float32)
            store.accumulate(batch, micro_batch, layer, ids, grads)
            table.accumulate((micro_batch, layer), torch.from_numpy(ids), torch.from_numpy(grads))
        table.commit()
        assert table.step == store.step
        ids, grads = rng.integers(0, 9, 5), rng.normal(size=(5, dim)).astype(np.float32)
        store.push(ids, grads, 0.1)
        table.push(torch.from_numpy(ids), torch.from_numpy(grads), lr=0.1)
    everything = torch.arange(12)
    assert table.pull(everything).numpy().tobytes() == pull(store, everything.numpy()).tobytes()


def test_an_empty_commit_is_a_step():
    table = LocalTable(2)
    table.commit()
    assert (table.step, len(table)) == (1, 0)


def test_sgd_by_hand_sums_repeated_ids():
    table = LocalTable(2, "sgd", 0.5, initial="constant", scale=1.0)
    table.push(torch.tensor([7, 8, 7]), torch.tensor([[1.0, 0], [1, 1], [2, 0]]))
    assert table.pull(torch.tensor([7, 8, 9])).tolist() == [[-0.5, 1], [0.5, 0.5], [1, 1]]


def test_adagrad_by_hand():
    table = LocalTable(2, "adagrad", 1.0, initial="zeros", eps=0.0)
    for _ in range(2):
        table.push(torch.tensor([1]), torch.tensor([[3.0, -4.0]]))
    step = 1 + 0.5**0.5  # 3/√9 + 3/√18
    torch.testing.assert_close(table.pull(torch.tensor([1])), torch.tensor([[-step, step]]))


def test_rowwise_adagrad_by_hand():
    table = LocalTable(2, "rowwise_adagrad", 1.0, initial="zeros", eps=0.0)
    table.push(torch.tensor([1]), torch.tensor([[1.0, 7.0]]))
    assert table.pull(torch.tensor([1])).tolist() == [[pytest.approx(-0.2), pytest.approx(-1.4)]]


def test_double_precision_starts_from_the_same_rows():
    single, double = LocalTable(4, seed=1), LocalTable(4, seed=1, dtype=torch.float64)
    assert double.pull(IDS).dtype == torch.float64
    assert torch.equal(double.pull(IDS), single.pull(IDS).double())
    grads = torch.rand(len(IDS), 4, dtype=torch.float64)
    double.push(IDS, grads)
    single.push(IDS, grads.float())
    torch.testing.assert_close(double.pull(IDS).float(), single.pull(IDS))


def test_what_is_unknown_is_refused():
    with pytest.raises(UnknownNameError, match="rule"):
        LocalTable(2, "adagrod")
    with pytest.raises(UnknownNameError, match="initial"):
        LocalTable(2, initial="unifrom")
    with pytest.raises(InputError, match="dtype"):
        LocalTable(2, dtype=torch.float16)
    with pytest.raises(UnknownNameError, match="table"):
        LocalRows({"default": LocalTable(2)}).pull("defalt", IDS)
