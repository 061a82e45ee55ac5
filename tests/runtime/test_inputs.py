import gc
import time
import weakref
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from heterps.errors import ServerError
from heterps.models.context import Context
from heterps.runtime.inputs import Feed, Inputs
from heterps.runtime.lookups import Lookup
from heterps.wire.wake import Wake


class FakeLookups:
    """Answers pulls when it is told to."""

    def __init__(self):
        self.pulls = {}

    def begin(self, batch, arrived, context, done):
        lookup = Lookup(done, torch.zeros(()), training=True)
        asked = {"embedding": arrived["ids"]} if "ids" in arrived else {}

        def pull(layer, ids):
            self.pulls[context.micro_batch] = (batch, ids, Future())
            return self.pulls[context.micro_batch][2]

        lookup.start(asked, pull)
        return lookup

    def answer(self, number):
        _, ids, future = self.pulls[number]
        future.set_result(np.repeat(ids.numpy()[:, None], 2, axis=1).astype(np.float32))


@pytest.fixture
def lookups():
    return FakeLookups()


@pytest.fixture
def inputs(lookups):
    return Inputs(lookups, Wake())


def add(inputs, number, **arrived):
    inputs.add(number, 7, arrived, Context(0, number))


def test_what_needs_no_rows_is_ready_at_once(inputs):
    add(inputs, 3, x=torch.ones(2))
    assert list(inputs.ready()) == [3]
    assert list(inputs.ready()) == []
    assert len(inputs) == 1
    arrived, asked = inputs.take(3)
    assert torch.equal(arrived["x"], torch.ones(2))
    assert asked == {}
    assert len(inputs) == 0


def test_they_become_ready_in_the_order_of_their_rows(inputs, lookups):
    for number in (1, 2):
        add(inputs, number, ids=torch.tensor([5, 4, 5]))
    assert list(inputs.ready()) == []
    lookups.answer(2)
    assert list(inputs.ready()) == [2]
    lookups.answer(1)
    assert list(inputs.ready()) == [1]


def test_each_id_is_asked_for_once_and_for_the_right_batch(inputs, lookups):
    add(inputs, 1, ids=torch.tensor([5, 4, 5]))
    batch, ids, _ = lookups.pulls[1]
    assert batch == 7
    assert sorted(ids.tolist()) == [4, 5]
    lookups.answer(1)
    rows = inputs.take(1).asked["embedding"].rows
    assert rows.values[rows.inverse][:, 0].tolist() == [5, 4, 5]
    assert rows.values.requires_grad


def test_rows_are_under_way_from_the_commit_that_they_wait_for(inputs, lookups):
    add(inputs, 1, ids=torch.tensor([5]))
    time.sleep(0.05)
    began = time.perf_counter()
    inputs.committed(6)
    lookups.answer(1)
    assert 0 < inputs.pulls.seconds <= time.perf_counter() - began
    assert 1 in inputs


def test_rows_that_come_before_the_commit_have_kept_nobody_waiting(inputs, lookups):
    inputs.committed(5)
    add(inputs, 1, ids=torch.tensor([5]))
    time.sleep(0.01)
    lookups.answer(1)
    assert inputs.pulls.seconds == 0


def test_what_a_server_answered_is_raised_where_the_input_is_taken(inputs, lookups):
    add(inputs, 1, ids=torch.tensor([5]))
    lookups.pulls[1][2].set_exception(ServerError("server 0 does not answer"))
    assert list(inputs.ready()) == [1]
    with pytest.raises(ServerError, match="server 0"):
        inputs.take(1)


class FakeReader:
    def __init__(self, read):
        self.read = read

    def is_read(self, number):
        return number in self.read

    def micro_batch(self, number):
        return {"x": torch.tensor([float(number)])}


def test_a_feed_gives_what_is_read_in_order_and_not_past_the_end():
    reader = FakeReader({0, 4})
    feed = Feed(reader, iter((0, 2, 4)), lambda batch: {"x": batch["x"] * 2})
    number, batch = feed.take(before=10)
    assert (number, batch["x"].item()) == (0, 0.0)
    assert feed.take(before=10) is None, "2 is still being read"
    reader.read.add(2)
    assert feed.take(before=2) is None, "2 is past the end of what is known"
    assert feed.take(before=3)[1]["x"].item() == 4.0
    assert feed.take(before=10)[0] == 4
    assert feed.take(before=10) is None


def test_rows_are_gone_with_the_last_who_has_them():
    """Nothing is left to a collection of garbage: memory that is shared would grow until then."""
    pull: Future[np.ndarray] = Future()
    lookup = Lookup(lambda: None, torch.zeros(1), training=True)
    lookup.start({"layer": torch.tensor([4, 4, 7])}, lambda layer, ids, pull=pull: pull)
    gc.collect()
    gc.disable()
    try:
        rows = np.ones((2, 3), np.float32)
        there = weakref.ref(rows)
        pull.set_result(rows)
        del pull, rows
        asked = lookup.asked()
        del lookup
        assert there() is not None
        assert asked["layer"].rows.values.tolist() == [[1.0] * 3] * 2
        del asked
        assert there() is None
    finally:
        gc.enable()
