import math

import pytest

from heterps.data.lane_plan import LanePlan
from heterps.runtime.layout import Layout, StageLayout
from heterps.runtime.meter import BUSY
from heterps.runtime.metrics import LossCounts
from heterps.runtime.progress import Progress

STAGES = (StageLayout(0, 0, "cpu", 2), StageLayout(1, 1, "cpu", 1))


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def progress(clock):
    """3 batches an epoch of two micro-batches each: of 2 and 2 samples, 2 and 1, 1 and 1."""
    layout = Layout(STAGES, LanePlan(9, 3, 2, 2), None, 6, 0, {})
    return Progress(layout, None, 10, 3600.0, clock)


def said(losses=(), batch=-1, staleness=None, busy=0.0, wall=1.0):
    meter = {**dict.fromkeys(BUSY, busy), "wall_s": wall, "cpu_s": wall}
    return {"meter": meter, "staleness": staleness or {}, "batch": batch, "losses": list(losses)}


def test_a_batch_counts_once_all_its_micro_batches_have_a_loss(progress):
    progress.heard(2, said([(1, 4.0)]))
    assert (progress.step, progress.samples) == (0, 0)
    assert math.isnan(progress.loss)
    progress.heard(2, said([(0, 2.0)]))
    assert (progress.step, progress.samples, progress.loss) == (1, 4, 3.0)


def test_a_loss_is_weighted_by_samples(progress):
    progress.heard(2, said([(0, 0.0), (1, 0.0), (2, 3.0), (3, 6.0)]))
    assert progress.loss == pytest.approx((2 * 3.0 + 1 * 6.0) / 3)
    assert progress.samples == 7


def test_losses_that_come_early_wait_for_their_turn(progress):
    progress.heard(2, said([(2, 1.0), (3, 1.0)]))
    assert progress.take_losses() == (0, [])
    progress.heard(2, said([(0, 5.0), (1, 5.0)]))
    assert progress.take_losses() == (0, [5.0, 1.0])
    assert progress.take_losses() == (2, [])


def test_pace_and_cost_go_by_the_clock(progress, clock):
    for second, number in ((0, 0), (2, 2)):
        clock.now = 100.0 + second
        progress.heard(2, said([(number, 1.0), (number + 1, 1.0)]))
    assert progress.samples_per_s == pytest.approx(1.5)
    assert progress.mean_samples_per_s == pytest.approx(1.5)
    assert progress.batches_per_s == pytest.approx(1.5 / 4)
    assert progress.status().dollars == pytest.approx(2.0)
    assert progress.status().seconds == pytest.approx(2.0)


def test_a_segment_that_has_just_begun_is_taken_to_be_as_quick_as_earlier_ones(progress, clock):
    for second, number in ((0, 0), (2, 2)):
        clock.now = 100.0 + second
        progress.heard(2, said([(number, 1.0), (number + 1, 1.0)]))
    progress.begin(2)
    assert math.isnan(progress.samples_per_s)
    assert progress.batches_per_s == pytest.approx(1.5 / 4)


def test_time_between_segments_does_not_count_for_the_pace(progress, clock):
    progress.heard(2, said([(0, 1.0), (1, 1.0)]))
    clock.now += 1
    progress.heard(2, said([(2, 1.0), (3, 1.0)]))
    clock.now += 1000
    progress.begin(2)
    assert math.isnan(progress.samples_per_s)
    progress.heard(2, said([(4, 1.0), (5, 1.0)]))
    assert progress.mean_samples_per_s == pytest.approx(3.0)


def test_figures_are_the_mean_over_the_replicas_of_a_stage(progress):
    progress.heard(0, said(busy=0.1, wall=1.0))
    progress.heard(1, said(busy=0.05, wall=1.0))
    first, second = progress.figures()
    assert first[BUSY[0]] == pytest.approx(0.075)
    assert second == {}
    assert progress.status().busy == (pytest.approx(0.075 * len(BUSY)), 0.0)


def test_staleness_adds_up_over_workers_and_is_not_counted_twice(progress):
    progress.heard(0, said(staleness={"0": 2, "1": 1}))
    progress.heard(0, said(staleness={"0": 3, "1": 1}))
    progress.heard(1, said(staleness={"1": 4}))
    assert progress.status().staleness == {"0": 3, "1": 5}


def test_the_last_committed_batch_is_that_of_the_foremost_worker(progress):
    assert progress.committed == -1
    progress.heard(0, said(batch=3))
    progress.heard(1, said(batch=2))
    assert progress.committed == 3


def test_what_a_batch_takes_is_measured_once_all_workers_are_warm(progress):
    cold = {"batches": 1.0, "train_s": 9.0, "committed_s": 9.0, "forward_s": 8.0}
    warm = {"batches": 2.0, "train_s": 10.0, "committed_s": 10.0, "forward_s": 8.5}
    late = {"batches": 6.0, "train_s": 12.0, "committed_s": 12.0, "forward_s": 9.5}
    assert progress.measured() == [None, None]
    for meter in (cold, warm, late):
        for worker in range(3):
            progress.heard(worker, said() | {"meter": meter})
    for stage in progress.measured():
        assert (stage.batches, stage.batch_s, stage.forward_s) == (4.0, 0.5, 0.25)


def test_progressive_metrics_go_on_where_a_snapshot_had_them(progress, clock):
    layout = Layout(STAGES, LanePlan(9, 3, 2, 2), None, 6, 0, {})
    counts = LossCounts()
    counts.add(0.5, 3)
    progress.heard(2, said() | {"counts": counts.pack()})
    later = Progress(layout, None, 10, 3600.0, clock)
    later.go_on_from(progress.recent())
    later.heard(2, said() | {"counts": counts.pack()})
    assert later.status().metrics == {"loss": 0.5}
    other = Progress(layout, "binary", 10, 3600.0, clock)
    other.go_on_from(progress.recent())
    assert math.isnan(other.status().metrics["auc"])
