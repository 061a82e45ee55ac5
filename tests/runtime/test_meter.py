import time

import pytest

from heterps.runtime.meter import BACKWARD, BUSY, FORWARD, PREDICT, WAIT, Meter, Spans


def test_time_counts_for_its_purpose_also_when_the_work_fails():
    meter = Meter()
    with meter.training(), pytest.raises(ZeroDivisionError), meter.measure(FORWARD):
        sum(1 / number for number in range(1000, -1, -1))
    figures = meter.figures()
    assert figures[FORWARD] > 0
    assert figures[BACKWARD] == 0
    assert sum(figures[name] for name in BUSY) <= figures["train_s"] <= figures["wall_s"]


def test_work_and_waits_outside_of_training_are_kept_apart():
    meter = Meter()
    with meter.measure(FORWARD):
        meter.waited("rows", time.perf_counter() - 1.0)
    figures = meter.figures()
    assert figures[PREDICT] > 0
    assert (figures[FORWARD], figures[WAIT], figures["train_s"]) == (0, 0, 0)


def test_waits_are_told_by_their_cause_and_batches_by_when_the_last_was_committed():
    meter = Meter()
    with meter.training():
        meter.committed()
        meter.waited("rows", time.perf_counter() - 1.0)
        meter.committed()
    figures = meter.figures()
    assert figures["wait_rows_s"] == figures[WAIT] >= 1.0
    assert figures["batches"] == 2
    assert 0 < figures["committed_s"] <= figures["train_s"]


def test_staleness_is_counted_by_how_many_batches_it_was():
    meter = Meter()
    for batches in (0, 2, 0):
        meter.note_staleness(batches)
    assert meter.staleness == {0: 2, 2: 1}


def test_spans_that_overlap_count_once():
    spans = Spans()
    for began, ended in ((1.0, 3.0), (2.0, 4.0), (2.5, 3.5), (6.0, 7.0)):
        spans.add(began, ended)
    assert spans.seconds == 4.0


def test_work_inside_other_work_counts_for_itself_alone():
    meter = Meter()
    with meter.training(), meter.measure(FORWARD), meter.measure(BACKWARD):
        time.sleep(0.01)
    figures = meter.figures()
    assert figures[BACKWARD] >= 0.01 > figures[FORWARD]
    assert figures[FORWARD] + figures[BACKWARD] <= figures["train_s"]
