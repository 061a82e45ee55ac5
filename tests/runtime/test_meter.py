import pytest

from heterps.runtime.meter import BACKWARD, BUSY, FORWARD, Meter


def test_time_counts_for_its_purpose_also_when_the_work_fails():
    meter = Meter()
    with pytest.raises(ZeroDivisionError), meter.measure(FORWARD):
        sum(1 / number for number in range(1000, -1, -1))
    figures = meter.figures()
    assert figures[FORWARD] > 0
    assert figures[BACKWARD] == 0
    assert sum(figures[name] for name in BUSY) <= figures["wall_s"]


def test_staleness_is_counted_by_how_many_batches_it_was():
    meter = Meter()
    for batches in (0, 2, 0):
        meter.note_staleness(batches)
    assert meter.staleness == {0: 2, 2: 1}
