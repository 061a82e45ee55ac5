import pytest

from heterps.runtime.course import Course
from heterps.runtime.prepare import prepare
from heterps.testing.runs import small_job


@pytest.fixture
def course(tmp_path):
    """Of two epochs, 20 batches each."""

    def make(**changes):
        epochs = {"workload__epochs": 2, "data__validation": 0.2}
        setup = prepare(small_job(tmp_path, "two_emb", **epochs, **changes))
        assert setup.layout.batches == 40
        return Course(setup.job, setup.layout)

    return make


def ends(course):
    """Of all segments."""
    found = [0]
    while found[-1] < course.layout.batches:
        found.append(course.segment_end(found[-1]))
    return found[1:]


def test_a_segment_ends_with_an_epoch_which_is_validated(course):
    found = course()
    assert ends(found) == [20, 40]
    assert [step for step in range(1, 41) if found.validation_is_due(step)] == [20, 40]


def test_a_segment_ends_where_a_snapshot_or_a_validation_is_due(course):
    found = course(snapshot__every=16, validation__every=12)
    assert ends(found) == [12, 16, 24, 32, 36, 40]
    assert [step for step in range(1, 41) if found.validation_is_due(step)] == [12, 24, 36, 40]


def test_what_is_left_is_what_was_not_trained(course):
    assert course().samples_left(done=640) == 640
