"""The loop of a worker with everything around it made up: in which order it asks and works."""

import pytest
import torch

from heterps.models.batch import LOSS
from heterps.models.context import Context
from heterps.runtime.orders import Orders, Segment
from heterps.runtime.prepare import prepare
from heterps.runtime.replica import Replica
from heterps.testing.runs import small_job
from heterps.wire.wake import Wake


class Quick:
    """A stage, neighbours, lookups and a reader that note what was asked for; rows come when
    somebody waits for them."""

    beside = sums = False
    chain = None

    def __init__(self):
        self.events = []
        self.wake = Wake()
        self._coming, self._ready, self._under_way = {}, [], []

    def context(self, number, *, training=True):
        return Context(0, number, training)

    def forward(self, micro_batch, arrived, asked):
        self.events.append(("forward", micro_batch.number))
        return {LOSS: torch.zeros(()), "score": torch.zeros(1), "label": torch.zeros(1)}

    def backward(self, number, arrived):
        return {}, []

    def finish_backward(self, number):
        pass

    def commit(self, batch):
        pass

    def committed(self, batch):
        pass

    def check(self):
        pass

    def settle(self):
        pass

    def receive(self, timeout_s):
        if timeout_s > 0:
            self._ready += self._under_way
            self._under_way = []
        return []

    def is_read(self, number):
        return True

    def micro_batch(self, number):
        return {}

    def __len__(self):
        return len(self._coming)

    def __contains__(self, number):
        return number in self._coming

    def add(self, number, batch, arrived, context):
        self.events.append(("ask", number))
        self._coming[number] = arrived
        self._under_way.append(number)

    def ready(self):
        ready, self._ready = self._ready, []
        return ready

    def take(self, number):
        return self._coming.pop(number), {}


@pytest.mark.parametrize("far_rows", [True, False])
def test_far_rows_are_asked_for_while_others_are_worked_on(tmp_path, far_rows):
    setup = prepare(small_job(tmp_path, "ctrdnn", workload__staleness=2))
    own = Quick()
    replica = Replica(
        setup.layout,
        (0, 0),
        own,
        own,
        own,
        own,
        lambda: Nothing(),
        torch.zeros(0),
        far_rows=far_rows,
    )
    orders = Orders(lambda: Segment(4, closed=True), *[lambda *_: None] * 3)
    replica.train(0, own, orders)
    asked = [number for what, number in own.events if what == "ask"]
    done = [number for what, number in own.events if what == "forward"]
    assert asked == done == sorted(done)
    under_way = [
        number_of(own.events[:at], "ask") - number_of(own.events[:at], "forward")
        for at, (what, number) in enumerate(own.events)
        if what == "forward" and number <= done[-1] - 4
    ]
    assert max(under_way) > 1
    assert (min(under_way) == max(under_way)) is far_rows


def test_whoever_has_done_all_it_knows_of_says_so_and_goes_on_when_there_is_more(tmp_path):
    setup = prepare(small_job(tmp_path, "ctrdnn"))
    own, known, said = Quick(), Segment(2, closed=False), []
    replica = Replica(setup.layout, (0, 0), own, own, own, own, lambda: Nothing(), torch.zeros(0))

    def waiting(finished):
        said.append(finished)
        if finished:
            known.end, known.closed = 4, True

    nothing = lambda *_: None  # noqa: E731
    replica.train(0, own, Orders(lambda: known, nothing, nothing, waiting))
    assert said.count(True) == 1
    assert number_of(own.events, "forward") == len(own.events) // 2


def number_of(events, wanted):
    return sum(1 for what, _ in events if what == wanted)


class Nothing:
    def observe(self, made, labels):
        pass
