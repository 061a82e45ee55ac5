import numpy as np
import pytest

from heterps.data.ceiling import auc, logloss
from heterps.data.zipf import Zipf
from heterps.errors import InputError


@pytest.mark.parametrize("exponent", [0.5, 1.05, 1.2, 2.5])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_draws_follow_the_distribution(exponent: float, size: int):
    zipf = Zipf(exponent, size)
    draws = zipf.draw(np.random.default_rng(0), 50_000)
    expected = np.arange(1, size + 1) ** -exponent
    expected /= expected.sum()
    assert np.exp(zipf.log_probability(np.arange(size))) == pytest.approx(expected)
    found = np.bincount(draws, minlength=size) / 50_000
    assert len(found) == size
    likely = expected > 1e-4
    error = np.abs(found - expected)[likely] / np.sqrt(expected[likely] / 50_000)
    assert error.max() < 5
    assert found[~likely].sum() == pytest.approx(expected[~likely].sum(), abs=0.005)


def test_a_million_ids_need_no_table():
    draws = Zipf(1.05, 10**15).draw(np.random.default_rng(0), 1000)
    assert draws.min() >= 0
    assert draws.max() < 10**15


def test_exponent_one_is_refused():
    with pytest.raises(InputError, match="exponent: expected more than 0 and not 1, got 1"):
        Zipf(1.0, 10)


def test_auc_and_logloss_by_hand():
    labels = np.array([0, 1, 0, 1, 1])
    scores = np.array([0.1, 0.4, 0.4, 0.3, 0.9])
    # of 6 pairs: 0.4>0.1, 0.4=0.4 (half), 0.3>0.1, 0.3<0.4, 0.9 above both
    assert auc(labels, scores) == pytest.approx(4.5 / 6)
    assert np.isnan(auc(labels[:1], scores[:1]))
    assert logloss(np.array([1, 0]), np.array([0.5, 0.2])) == pytest.approx(
        -(np.log(0.5) + np.log(0.8)) / 2
    )
    assert logloss(np.array([1.0]), np.array([0.0])) < 40
