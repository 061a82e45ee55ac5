import pytest

from heterps.errors import InputError
from heterps.events import EventLog
from heterps.runtime.meter import BACKWARD, COMMIT, FORWARD, PREDICT, PREPARE, SEND, WAIT
from heterps.runtime.profiling.observed import observe


def told(second, samples, **changes):
    """A replica that works for half of its time, a tenth of it in the loop itself; of its commits,
    one a second, a quarter is work."""
    shares = {FORWARD: 0.1, BACKWARD: 0.2, PREPARE: 0.05, SEND: 0.05, COMMIT: 0.1, WAIT: 0.4}
    figures = {name: share * second for name, share in shares.items()}
    own = {"unit_s": 0.4 * second, "step_s": 0.025 * second, "batches": float(int(second))}
    totals = {"wall_s": second, "link_s": 0.0, "samples": samples, PREDICT: 0.0}
    return {**figures, **own, **totals, **changes}


def events_of(folder, *stages):
    with EventLog(folder / "events.jsonl") as events:
        events.write("ready", step=0)
        for each in stages:
            events.write("progress", stages=each)


def test_seconds_are_those_of_a_sample(tmp_path):
    events_of(tmp_path, *([told(1.0 + second, 100.0 * second)] for second in range(9)))
    (stage,) = observe(tmp_path)
    assert stage.forward_s == pytest.approx(0.1 / 100)
    assert (stage.step_s, stage.sync_s) == pytest.approx((0.025, 0.075))
    assert stage.work_s == pytest.approx(0.5 / 100)
    assert stage.spread == pytest.approx(0, abs=1e-6)


def test_what_others_held_it_up_for_is_not_its_own(tmp_path):
    held_up = [told(1.0 + at, 100.0 * at, unit_s=0.2 * (1 + at)) for at in range(9)]
    events_of(tmp_path, *([each] for each in held_up))
    (stage,) = observe(tmp_path)
    assert stage.forward_s == pytest.approx(0.05 / 100)
    assert stage.work_s == pytest.approx((0.2 + 0.1) / 100)


def test_only_the_last_generation_counts(tmp_path):
    events_of(tmp_path, *([told(1.0 + second, 10.0 * second)] for second in range(4)))
    events_of(tmp_path, *([told(1.0 + second, 100.0 * second)] for second in range(4)))
    assert observe(tmp_path)[0].work_s == pytest.approx(0.5 / 100)


@pytest.mark.parametrize("stages", [[], [[{}, {}]], [[told(1.0, 5)]]])
def test_a_run_that_says_too_little_is_refused(tmp_path, stages):
    events_of(tmp_path, *stages)
    with pytest.raises(InputError, match="too short"):
        observe(tmp_path)


def test_a_run_of_an_earlier_version_is_refused(tmp_path):
    events_of(tmp_path, [{FORWARD: 1.0, "wall_s": 2.0}])
    with pytest.raises(InputError, match="earlier version"):
        observe(tmp_path)
