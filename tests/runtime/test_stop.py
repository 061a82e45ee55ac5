import os
import signal

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


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal as it is outside of `nohup`, under which these tests may run."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_what_ends_machines_is_heard_like_ctrl_c(number, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("heterps.runtime.stop.time.monotonic", lambda: clock[0])
    stop = Stop()
    stop.armed = True
    with stop.listening():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # an echo
        assert (stop.asked, stop.signal) == (True, number)
        clock[0] += 2.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == signal.SIG_DFL


def test_a_sighup_that_is_ignored_stays_so():
    stop = Stop()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop.listening():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not stop.asked
