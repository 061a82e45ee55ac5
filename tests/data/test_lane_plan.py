from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.data.lane_plan import BatchRange, LanePlan, Span, lanes_of_replica
from heterps.errors import InputError

plans = st.builds(
    LanePlan,
    samples=st.integers(1, 400),
    lanes=st.integers(1, 20),
    micro_batch_size=st.integers(1, 50),
    micro_batches=st.integers(1, 9),
)


def spans(plan: LanePlan, epoch: int) -> list[Span]:
    return [plan.span_of(epoch * plan.per_epoch + j) for j in range(plan.per_epoch)]


def numbers(found: list[Span]) -> list[int]:
    return [number for span in found for number in range(span.start, span.stop)]


def test_a_small_case_by_hand():
    # lanes of 4, 3 and 3 samples: two full rounds, nothing more but one sample of the first lane
    plan = LanePlan(samples=10, lanes=3, micro_batch_size=3, micro_batches=2)
    assert plan.per_epoch == 4
    assert spans(plan, 0) == [(0, 0, 3), (0, 4, 7), (0, 7, 10), (0, 3, 4)]
    # the second epoch starts with micro-batch 4, on lane 1, which is now the long one
    assert spans(plan, 1) == [(1, 0, 3), (1, 4, 7), (1, 7, 10), (1, 3, 4)]
    assert plan.lane_of(4) == 1
    assert plan.lane_span(1, 1) == (1, 0, 4)
    assert plan.lane_span(1, 0) == (1, 7, 10)
    assert [plan.batch(b) for b in range(3)] == [(0, 0, 2), (0, 2, 4), (1, 4, 6)]


def test_the_last_batch_of_an_epoch_is_smaller_and_the_next_starts_anew():
    plan = LanePlan(samples=100, lanes=5, micro_batch_size=7, micro_batches=4)
    assert (plan.per_epoch, plan.batches_per_epoch) == (15, 4)
    assert plan.batch(3) == BatchRange(0, 12, 15)
    assert plan.batch(4) == BatchRange(1, 15, 19)
    assert plan.batch_samples(3) == 3 * 6
    assert sum(plan.batch_samples(b) for b in range(4)) == 100


def test_an_epoch_of_another_size_goes_on_where_the_last_ended():
    one = LanePlan(samples=10, lanes=3, micro_batch_size=3, micro_batches=2)
    other = one.then(5)  # lanes of 2, 2 and 1: a round of three, the first on lane 1
    assert (other.epoch, other.first, other.first_batch) == (1, 4, 2)
    assert [other.span_of(j) for j in range(4, 7)] == [(1, 0, 2), (1, 2, 4), (1, 4, 5)]
    assert [other.batch(b) for b in (2, 3)] == [(1, 4, 6), (1, 6, 7)]
    assert [other.batch_of(j) for j in (4, 5, 6)] == [2, 2, 3]
    assert (other.epoch_end(2), other.epoch_end(3)) == (4, 4)
    assert other.then(1).span_of(7) == (2, 0, 1)


@settings(deadline=None)
@given(plan=plans, epoch=st.integers(1, 5), within=st.integers(0, 400))
def test_epochs_of_the_same_size_are_those_of_one_plan(plan: LanePlan, epoch: int, within: int):
    last = plan
    for _ in range(epoch):
        last = last.then(plan.samples)
    j = last.first + within
    assert last.span_of(j) == plan.span_of(j)
    assert last.batch_of(j) == plan.batch_of(j)
    assert last.batch(last.first_batch + within) == plan.batch(last.first_batch + within)


def test_every_sample_once_an_epoch_in_all_small_cases():
    for samples, lanes, size in product(range(1, 26), range(1, 7), range(1, 8)):
        plan = LanePlan(samples, lanes, size, 3)
        for epoch in range(3):
            found = spans(plan, epoch)
            assert sorted(numbers(found)) == list(range(samples))
            assert all(span.epoch == epoch and span.start < span.stop for span in found)


@settings(deadline=None)
@given(plan=plans, epoch=st.integers(0, 5))
def test_lanes_are_equal_but_for_one_and_read_in_order(plan: LanePlan, epoch: int):
    lengths = []
    for lane in range(plan.lanes):
        span = plan.lane_span(epoch, lane)
        first = epoch * plan.per_epoch
        mine = range(first + (lane - first) % plan.lanes, first + plan.per_epoch, plan.lanes)
        assert numbers([plan.span_of(j) for j in mine]) == list(range(span.start, span.stop))
        lengths.append(span.stop - span.start)
        # only the last one is short
        sizes = [plan.span_of(j).stop - plan.span_of(j).start for j in mine]
        assert all(size == plan.micro_batch_size for size in sizes[:-1])
    assert sum(lengths) == plan.samples
    assert max(lengths) - min(lengths) <= 1


@settings(deadline=None)
@given(plan=plans)
def test_batches_follow_each_other_and_stay_in_their_epoch(plan: LanePlan):
    expected = 0
    for number in range(3 * plan.batches_per_epoch):
        epoch, first, stop = plan.batch(number)
        assert first == expected
        assert 1 <= stop - first <= plan.micro_batches
        assert {plan.epoch_of(j) for j in range(first, stop)} == {epoch}
        assert {plan.batch_of(j) for j in range(first, stop)} == {number}
        assert plan.batch_samples(number) > 0
        expected = stop
    assert expected == 3 * plan.per_epoch


@settings(deadline=None)
@given(plan=plans, replicas=st.integers(1, 8), start=st.integers(0, 100))
def test_replicas_share_out_the_micro_batches(plan: LanePlan, replicas: int, start: int):
    seen: list[int] = []
    for replica in range(replicas):
        lanes = lanes_of_replica(replica, replicas, plan.lanes)
        for j in islice(plan.owned(lanes, start), 200):
            if j >= start + 100:
                break
            assert (j % plan.lanes) % replicas == replica
            seen.append(j)
    assert sorted(seen) == list(range(start, start + 100))


@settings(deadline=None)
@given(plan=plans, stop=st.integers(0, 500))
def test_cursors_say_where_to_go_on(plan: LanePlan, stop: int):
    cursors = plan.cursors(stop)
    assert cursors == tuple(
        sum(j % plan.lanes == v for j in range(stop)) for v in range(plan.lanes)
    )
    assert plan.resume(cursors) == stop


@pytest.mark.parametrize("cursors", [(1, 1), (2, 0, 0), (0, 1, 0), (-1, 0, 0)])
def test_cursors_of_no_run_are_refused(cursors: tuple[int, ...]):
    with pytest.raises(InputError, match="cursors"):
        LanePlan(10, 3, 2).resume(cursors)


def test_a_size_of_zero_is_refused_by_name():
    with pytest.raises(InputError, match="lanes: expected 1 or more, got 0"):
        LanePlan(10, 0, 2)
