from dataclasses import replace

import msgpack
import pytest

from heterps.data.lane_plan import LanePlan
from heterps.runtime.layout import Layout, StageLayout, micro_batch, micro_batches_of
from heterps.runtime.stage import Cut

CUT = Cut(("x", "label"), ("x",))
STAGES = (StageLayout(0, 2, "cpu", 3, None, CUT), StageLayout(3, 7, "gpu", 2, CUT, None))


def make(samples=100, validation=None, batches=20):
    plan = LanePlan(samples, 16, 4, 3)
    return Layout(STAGES, plan, validation, batches, 1, {"default": 2, "other": 1})


@pytest.mark.parametrize("validation", [None, LanePlan(7, 16, 4, 3)])
def test_it_survives_a_message(validation):
    layout = replace(make(validation=validation), far=True)
    fields = msgpack.unpackb(msgpack.packb(layout.as_fields()))
    assert Layout.from_fields(fields) == layout


def test_workers_are_numbered_by_stage_and_replica():
    assert make().workers == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert make().routing.replicas == (3, 2)
    assert make().routing.lanes == 16


def test_between_hosts_twice_as_much_may_be_under_way():
    near = make().routing.credit(0)
    assert near == 4
    assert replace(make(), far=True).routing.credit(0) == 2 * near


def test_every_table_gets_a_part_for_each_of_its_layers_and_each_micro_batch():
    layout = make()
    last = layout.train.batches_per_epoch - 1
    assert layout.train.per_epoch == 32
    assert layout.parts(0) == {"default": 6, "other": 3}
    assert layout.parts(last) == {"default": 4, "other": 2}, "the last batch has 2 micro-batches"


def test_epochs_count_batches():
    assert make(batches=22).epochs == 2
    assert make(batches=11).epochs == 1


@pytest.mark.parametrize("samples", [1, 3, 97, 100])
def test_the_shares_of_a_batch_add_up_to_one(samples):
    plan = LanePlan(samples, 16, 4, 3)
    for batch in range(2 * plan.batches_per_epoch):
        parts = [micro_batch(plan, number) for number in micro_batches_of(plan, batch)]
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert {part.batch for part in parts} == {batch}


def test_a_share_is_that_of_the_samples():
    plan = LanePlan(5, 2, 2, 2)  # lanes of 3 and 2 samples: micro-batches of 2, 2 and 1
    assert [micro_batch(plan, number).share for number in range(3)] == [0.5, 0.5, 1.0]
