from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.runtime import histogram
from heterps.runtime.histogram import Histogram

PLACES = st.lists(st.lists(st.integers(-20, 20), max_size=30), max_size=8)


@settings(deadline=None)
@given(PLACES, st.integers(1, 40))
def test_each_place_stands_once_with_its_weights(pieces, most_waiting):
    found, expected = Histogram(), Counter()
    before, histogram._MOST_WAITING = histogram._MOST_WAITING, most_waiting
    for piece in pieces:
        ones = np.ones(len(piece))
        found.add(np.array(piece, np.int32), ones, 2 * ones)
        expected.update(piece)
    histogram._MOST_WAITING = before
    places, positive, negative = found.columns()
    assert places.tolist() == sorted(expected)
    assert positive.tolist() == [expected[place] for place in places]
    assert negative.tolist() == [2 * expected[place] for place in places]


def test_memory_goes_by_the_places_that_were_used():
    found = Histogram()
    for _ in range(100):
        found.add(np.arange(4096, dtype=np.int32), np.ones(4096), np.ones(4096))
        assert sum(len(places) for places, *_ in found._waiting) < 80_000
    assert found.columns()[1].tolist() == [100.0] * 4096
