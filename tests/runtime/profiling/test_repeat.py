import itertools

import pytest

from heterps.runtime.profiling.repeat import repeat


def test_what_does_not_vary_is_known_soon():
    calls = itertools.count()
    assert repeat(lambda: [1.0 + 0 * next(calls), 2.0]) == ([1.0, 2.0], 0.0)
    assert next(calls) < 20


def test_single_slow_ones_do_not_count():
    times = itertools.cycle([1.0, 1.0, 1.0, 9.0])
    (typical,), _ = repeat(lambda: [next(times)], most_s=0.2)
    assert typical == 1.0


@pytest.mark.parametrize(("share", "found"), [(0.5, 2.0), (0.1, 1.0), (1.0, 3.0)])
def test_the_quickest_are_told_from_the_rest(share, found):
    times = itertools.cycle([1.0, 2.0, 3.0])
    (typical,), spread = repeat(lambda: [next(times)], most_s=0.2, quickest=share)
    assert typical == found
    assert spread > 0.1
