import numpy as np
import pytest

from heterps.planning.kernel import Provisions
from heterps.planning.reward import measured_score, scores


def provisions(status, cost, violation):
    count = len(status)
    return Provisions(
        np.array(status, np.int32),
        np.array(cost, float),
        np.ones(count),
        np.array(violation, float),
        np.ones((count, 1), np.int64),
    )


def test_feasible_plans_score_by_their_cost_relative_to_the_reference():
    result = scores(provisions([0, 0], [2.0, 4.0], [0, 0]), 2.0)
    np.testing.assert_allclose(result, [0.0, np.log(2)])


def test_every_feasible_plan_beats_every_plan_that_breaks_a_constraint_far():
    result = scores(provisions([0, 4], [2.0, np.inf], [0, 5.0]), 2.0)
    assert result[0] < result[1]


def test_less_violation_is_better_within_each_reason():
    for status in (1, 2, 3, 4):
        near, far = scores(provisions([status] * 2, [np.inf] * 2, [0.1, 3.0]), 1.0)
        assert near < far


def test_a_plan_that_was_run_scores_as_one_that_was_priced():
    priced = scores(provisions([0, 0], [3.0, 40.0], [0, 0]), 2.0)
    assert [measured_score(cost, 2.0, 0.0) for cost in (3.0, 40.0)] == pytest.approx(list(priced))
    assert measured_score(1.0, 2.0, 0.5) > measured_score(1.0, 2.0, 0.1) > priced[1]
