from concurrent.futures import Future

import numpy as np
import pytest
import torch
from torch import nn

from heterps.errors import ServerError
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.embedding import SparseEmbedding
from heterps.ps.protocol import TableSpec
from heterps.runtime.lookups import Announced, BatchPulls, Lookups
from heterps.runtime.stage import RowGradients
from heterps.testing.servers import serving


@pytest.mark.timeout(60)
def test_rows_of_many_layers_and_micro_batches_ahead_do_not_hold_up_the_batch_before(tmp_path):
    """One thread asks for the rows of batch 1 before it gives the gradients of batch 0."""
    layers = [(f"slot{n}", SparseEmbedding(["C1"], 2, f"slot{n}")) for n in range(60)]
    with serving(tmp_path, retries=0, timeout_s=5.0) as client:
        chain = Chain([*layers, ("out", nn.Linear(2, 1))])
        tables = {name: client.create_table(name, TableSpec(dim=2)) for name, _ in layers}
        lookups = Lookups(chain, tables, lambda table, batch: Announced(1, None), torch.zeros(()))
        ids = {"C1": torch.tensor([7, 3, 7])}
        ready = []
        ahead = [
            lookups.begin(1, ids, Context(0, number), lambda number=number: ready.append(number))
            for number in range(10)
        ]
        assert not ready
        for name in tables:
            gradients = torch.ones(2, 2)
            lookups.give(RowGradients(name, 0, (0, 0), torch.tensor([3, 7]), gradients))
        lookups.settle()
        for lookup in ahead:
            assert {asked.rows.values.shape for asked in lookup.asked().values()} == {(2, 2)}
        assert sorted(ready) == list(range(10))


class Slow:
    """A table that answers when a test says so."""

    def __init__(self):
        self.answers = []

    def accumulate_async(self, *args, **options):
        self.answers.append(Future())
        return self.answers[-1]


def test_a_gradient_that_was_refused_is_noticed_behind_one_without_an_answer():
    table = Slow()
    lookups = Lookups(None, {"t": table}, lambda *_: Announced(2, None), torch.zeros(()))
    for part in range(2):
        lookups.give(RowGradients("t", 0, (part, 0), torch.tensor([3]), torch.ones(1, 2)))
    lookups.check()
    table.answers[1].set_exception(ServerError("no memory"))
    with pytest.raises(ServerError, match="no memory"):
        lookups.check()


@pytest.fixture
def asked():
    return []


def ask(ahead, asked, batch):
    """Notes the batch, and with it the future that a test answers."""
    future = Future()

    def pull():
        asked.append((batch, future))
        return future

    return ahead.begin(batch, pull)


def batches(asked):
    return [batch for batch, _ in asked]


def test_pulls_beyond_the_limit_follow_as_others_are_answered_the_earliest_batch_first(asked):
    ahead = BatchPulls(limit=2)
    given = [ask(ahead, asked, batch) for batch in (4, 4, 6, 5)]
    assert batches(asked) == [4, 4]
    asked[0][1].set_result("rows")
    assert given[0].result(0) == "rows"
    assert batches(asked) == [4, 4, 5]
    asked[1][1].set_exception(ServerError("gone"))
    assert isinstance(given[1].exception(0), ServerError)
    assert batches(asked) == [4, 4, 5, 6]


def test_pulls_of_later_batches_never_hold_up_an_earlier_one(asked):
    ahead = BatchPulls(limit=2)
    for batch in (6, 6, 6, 5):
        ask(ahead, asked, batch)
    assert batches(asked) == [6, 6, 5]


def test_a_pull_that_cannot_be_sent_says_so_where_its_rows_are_wanted(asked):
    ahead = BatchPulls(limit=1)
    ask(ahead, asked, 4)

    def closed():
        raise ServerError("this client is closed")

    kept = [ahead.begin(4, closed) for _ in range(2000)]
    asked[0][1].set_result(np.zeros(0))
    assert all(isinstance(each.exception(0), ServerError) for each in kept)
