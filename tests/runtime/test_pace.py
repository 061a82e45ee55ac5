import math

from heterps.runtime.pace import Peers, Work, drift


def looks(*paces, samples=100):
    """What each look finds, when replicas take so many seconds for a sample throughout."""
    peers = Peers()
    for number in range(1, 6):
        done = samples * number
        yield peers.look({n: Work(done, pace * done) for n, pace in enumerate(paces)})


def test_a_slow_replica_is_found_once_after_three_looks():
    found = list(looks(0.01, 0.02, 0.011))
    assert [len(slow) for slow in found] == [0, 0, 1, 0, 0]
    (slow,) = found[2]
    assert (slow.worker, round(slow.times, 2)) == (1, 1.9)


def test_replicas_of_one_pace_are_not_slow():
    assert not any(looks(0.01, 0.014, 0.012))


def test_a_replica_alone_has_no_peers():
    assert not any(looks(0.5))


def test_little_work_says_nothing():
    peers = Peers()
    for number in range(1, 6):
        assert peers.look({0: Work(number, 0.01), 1: Work(number, 9.0)}) == []


def test_one_slow_moment_is_not_persistent():
    peers, busy = Peers(), [0.0, 0.0]
    for number, own in enumerate([0.05, 0.05, 0.01, 0.05, 0.05], 1):
        busy = [busy[0] + 1.0, busy[1] + 100 * own]
        assert peers.look({n: Work(100 * number, busy[n]) for n in (0, 1)}) == []


def test_drift_is_told_beyond_its_margin():
    assert drift(80.0, 100.0, 0.3) is None
    assert drift(60.0, 100.0, 0.3)["ratio"] == 0.6
    assert drift(140.0, 100.0, 0.3)["ratio"] == 1.4


def test_without_figures_there_is_no_drift():
    assert drift(math.nan, 100.0, 0.3) is None
    assert drift(80.0, None, 0.3) is None
