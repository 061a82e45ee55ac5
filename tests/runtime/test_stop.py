import pytest

from heterps.runtime.stop import Stop


def test_before_the_training_a_run_is_stopped_at_once():
    with pytest.raises(KeyboardInterrupt):
        Stop().ask()


def test_the_first_time_a_run_may_take_a_snapshot_and_the_second_time_not():
    stop = Stop()
    stop.armed = True
    stop.ask()
    assert stop.asked
    with pytest.raises(KeyboardInterrupt):
        stop.ask()
