import math

from heterps.runtime.metrics import counts_for
from heterps.runtime.standing import Standing
from heterps.runtime.validations import Judge


def judged(*losses, patience=None, last=False):
    """What a judge says of one after the other, what stands then, and what was told."""
    standing, lines = Standing(), []
    judge = Judge("loss", patience, standing, lines.append)
    better = []
    for standing.step, loss in enumerate(losses):
        better.append(judge.judge(counts_for(None, 10), {"loss": loss}, last=last))
    return better, standing, lines


def test_the_best_validation_is_kept():
    better, standing, _ = judged(0.7, 0.5, 0.6)
    assert better == [True, True, False]
    assert (standing.best, standing.metrics) == ({"loss": 0.5}, {"loss": 0.6})


def test_a_run_stops_when_the_best_was_too_long_ago():
    assert not judged(0.5, 0.6, patience=2)[1].stopped_early
    assert judged(0.5, 0.6, 0.7, patience=2)[1].stopped_early
    assert not judged(0.5, 0.6, 0.7, patience=2, last=True)[1].stopped_early


def test_a_validation_without_a_figure_counts_for_nothing_and_is_told_once():
    better, standing, lines = judged(0.5, math.nan, math.nan, patience=1)
    assert better == [True, False, False]
    assert (standing.best, standing.stopped_early) == ({"loss": 0.5}, False)
    assert len(lines) == 1
    assert lines[0].startswith("validation at step 1 has no loss (")
