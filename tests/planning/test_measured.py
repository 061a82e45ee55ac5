import pytest

from heterps.planning.cost_model import StageCost
from heterps.planning.measured import CAUSES, MeasuredStage, check_stages, error
from heterps.runtime.meter import BUSY, WAITS, Meter

START = {"batches": 2.0, "train_s": 1.0, "committed_s": 1.0, "forward_s": 0.5}
NOW = {
    "batches": 12.0, "train_s": 6.5, "committed_s": 6.0, "forward_s": 1.6, "backward_s": 2.2,
    "prepare_s": 0.11, "send_s": 0.22, "commit_s": 0.55, "pull_s": 0.33, "push_s": 0.11,
    "link_s": 0.0, "wait_rows_s": 1.1, "wait_input_s": 0.11,
}  # fmt: skip


def test_figures_are_of_one_batch_between_two_moments():
    seen = MeasuredStage.between(START, NOW)
    assert seen.batch_s == pytest.approx(0.5)  # ten batches in the five seconds to the last commit
    assert (seen.forward_s, seen.backward_s) == (pytest.approx(0.1), pytest.approx(0.2))
    assert seen.compute_s == pytest.approx(0.1 + 0.2 + 0.01 + 0.02 + 0.01)
    assert seen.loop_s == pytest.approx(0.01)
    assert seen.comm_s == pytest.approx(0.03 + 0.01 + 0.05)
    assert seen.busy == pytest.approx((0.34 + 0.05) / 0.5)
    assert seen.waiting["rows"] == pytest.approx(0.1)


def test_the_step_of_a_commit_is_compute_and_its_waiting_communication():
    seen = MeasuredStage.between(START, NOW | {"step_s": 0.22})
    assert seen.compute_s == pytest.approx(0.34 + 0.02)
    assert seen.comm_s == pytest.approx(0.03 + 0.01 + 0.03)
    assert seen.busy == pytest.approx((0.34 + 0.05) / 0.5)


def test_without_a_batch_nothing_was_measured():
    assert MeasuredStage.between(NOW, NOW) is None
    assert MeasuredStage.between(None, {}) is None


def test_work_that_others_held_up_is_known_to_take_less():
    seen = MeasuredStage.between(START, NOW | {"unit_s": 0.5 * (1.1 + 2.2 + 0.11 + 0.22)})
    assert seen.calm == pytest.approx(0.5)
    assert seen.undisturbed_s == pytest.approx(0.33 / 2 + 0.01)


def test_an_emulated_link_counts_where_it_takes_longer():
    seen = MeasuredStage.between(START, NOW | {"link_s": 4.4})
    assert seen.comm_s == pytest.approx(0.4)
    assert seen.link_busy == pytest.approx(0.8)


def test_a_prediction_is_compared_with_what_was_measured():
    cost = StageCost(0, 3, "cpu", 2, 0.3, 0.09, 1000.0, 0.1)
    (stage,) = check_stages([("cpu", 2)], [cost], [MeasuredStage.between(START, NOW)], 340)
    assert stage.capacity == pytest.approx(1000.0)
    assert stage.errors["compute"] == pytest.approx(0.3 / 0.34 - 1)
    assert stage.errors["comm"] == pytest.approx(0.0)
    assert stage.errors["throughput"] == pytest.approx(0.0)
    assert stage.as_document()["measured"]["compute_s"] == pytest.approx(0.34)


def test_what_is_not_known_has_no_error():
    (stage,) = check_stages([("cpu", 1)], None, [None], 8)
    assert set(stage.errors.values()) == {None}
    assert stage.as_document()["predicted"] is None
    assert (error(1.0, 0.0), error(None, 1.0)) == (None, None)


def test_a_meter_of_a_worker_has_what_is_read_here():
    named = {*BUSY, *(f"wait_{cause}_s" for cause in CAUSES)} - {"predict_s"}
    assert named | {"batches", "train_s", "committed_s"} <= Meter().figures().keys()
    assert CAUSES == WAITS
