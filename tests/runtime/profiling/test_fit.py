import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterps.runtime.profiling.fit import fit_parallel


def amdahl(seconds, share, units):
    return seconds * (1 - share + share / units)


@given(st.floats(1e-6, 1e3), st.floats(0, 1), st.sets(st.integers(1, 64), min_size=2, max_size=5))
def test_the_share_that_made_the_times_is_found(seconds, share, units):
    fit = fit_parallel({k: amdahl(seconds, share, k) for k in units})
    assert fit.seconds == pytest.approx(seconds, rel=1e-3)
    assert fit.parallel == pytest.approx(share, abs=1e-3)
    assert fit.residual == pytest.approx(0, abs=1e-6)


def test_shares_stay_between_none_and_all():
    better_than_units = fit_parallel({1: 8.0, 2: 3.0})
    assert better_than_units.parallel == 1
    assert better_than_units.residual > 0.1
    slower_with_more = fit_parallel({1: 1.0, 4: 1.5})
    assert slower_with_more.parallel == 0
    assert 1.0 < slower_with_more.seconds < 1.5


def test_one_number_of_units_says_nothing_of_the_share():
    fit = fit_parallel({1: 2.0}, otherwise=0.9)
    assert (fit.seconds, fit.parallel, fit.residual) == (2.0, 0.9, None)


def test_what_may_be_noise_is_not_taken_for_a_part_that_does_not_parallelise():
    times = {1: 8.0, 4: 2.2}
    assert fit_parallel(times).parallel < 0.97
    calm = fit_parallel(times, otherwise=0.99, noise=0.1)
    assert calm.parallel == 0.99
    assert 8.0 < calm.seconds < 8.8
    assert 0 < calm.residual <= 0.1
    clear = fit_parallel({1: 8.0, 4: 3.2}, otherwise=0.99, noise=0.1)
    assert clear.parallel == pytest.approx(0.8)
