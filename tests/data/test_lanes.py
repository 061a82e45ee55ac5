import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.data.lane_plan import LanePlan, lanes_of_replica
from heterps.data.lanes import Lanes
from heterps.data.shuffle import permutation


@st.composite
def lane_sets(draw: st.DrawFn) -> Lanes:
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any))
    plan = LanePlan(sum(sizes), draw(st.integers(1, 9)), draw(st.integers(1, 20)), 4)
    return Lanes(plan, sizes, draw(st.integers(0, 3)), shuffle=draw(st.booleans()))


def rows_of(lanes: Lanes, j: int) -> list[tuple[int, int]]:
    """(row group, row) of every sample of a micro-batch."""
    epoch = lanes.plan.epoch_of(j)
    return [
        (piece.row_group, int(row))
        for piece in lanes.pieces_of(j)
        for row in lanes.rows(epoch, piece.row_group)[piece.start : piece.stop]
    ]


@settings(deadline=None)
@given(lanes=lane_sets(), epoch=st.integers(0, 3))
def test_every_row_once_an_epoch(lanes: Lanes, epoch: int):
    first = epoch * lanes.plan.per_epoch
    seen = [row for j in range(lanes.plan.per_epoch) for row in rows_of(lanes, first + j)]
    assert sorted(seen) == [(g, i) for g, size in enumerate(lanes.sizes) for i in range(size)]


@settings(deadline=None)
@given(lanes=lane_sets(), replicas=st.integers(1, 5), start=st.integers(0, 60))
def test_what_a_micro_batch_holds_depends_on_its_number_alone(lanes, replicas, start):
    fresh = Lanes(lanes.plan, lanes.sizes, lanes.seed, shuffle=lanes.shuffle)
    for replica in range(replicas):
        owned = lanes.plan.owned(lanes_of_replica(replica, replicas, lanes.plan.lanes), start)
        for j, _ in zip(owned, range(6), strict=False):
            assert rows_of(fresh, j) == rows_of(lanes, j)


def test_without_shuffling_one_lane_reads_the_files_in_order():
    lanes = Lanes(LanePlan(6, 1, 4), [2, 0, 4], shuffle=False)
    assert rows_of(lanes, 0) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert rows_of(lanes, 3) == [(2, 2), (2, 3)]


def test_epochs_and_seeds_have_orders_of_their_own():
    plan, sizes = LanePlan(400, 4, 100), [100] * 4
    orders = [
        [row for j in range(4) for row in rows_of(Lanes(plan, sizes, seed), 4 * epoch + j)]
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 4


def test_a_permutation_is_fixed_for_all_time():
    assert permutation(8, 1).tolist() == PERMUTATION_8_1
    assert permutation(1, 5).tolist() == [0]
    assert permutation(0, 5).tolist() == []


def test_a_permutation_has_no_place_of_its_own_for_any_number():
    places = np.array([permutation(64, key) for key in range(400)])
    assert all(len(set(row)) == 64 for row in places.tolist())
    # the mean place of 400 draws out of 64 has a standard error of 0.92
    assert np.abs(places.mean(axis=0) - 31.5).max() < 5


PERMUTATION_8_1 = [0, 5, 4, 1, 2, 6, 7, 3]
