from dataclasses import replace

import pytest

from heterps.job.resources import ResourceType
from heterps.models.trace import LayerTrace
from heterps.runtime.profiling.assemble import Batches, Moved, figures, link_s, totals
from heterps.runtime.profiling.exchange import CutTimes, RowTimes, Traffic
from heterps.runtime.profiling.layers import LayerTimes
from heterps.runtime.profiling.observed import StageSeconds

JOB = Batches(100, 4)
# For each sample 1 ms forward, 2 ms backward, 1 ms for rows; 0.4 s of commit a batch.
ONE = StageSeconds(1e-3, 2e-3, 0.6e-3, 0.4e-3, 0.4, 0.0, 0.0, 0.0, 0.0)
LAYERS = [
    LayerTrace("rows", "embedding", (), (), 8.0, 0, 0.0, table="t"),
    LayerTrace("fc", "fc", (), (), 4.0, 300, 0.0),
    LayerTrace("loss", "loss", (), (), 4.0, 100, 0.0),
]
TIMES = LayerTimes((1.0, 2.0, 1.0), (1.0, 3.0, 0.0), 0.0)
MOVED = Moved(
    {"rows": RowTimes({1: 0.02, 2: 0.04}, Traffic(6e5, 4e5))},
    [
        CutTimes(0, 0, Traffic(0, 0)),
        CutTimes(1e-3, 2e-3, Traffic(3e5, 2e5)),
        CutTimes(1e-3, 2e-3, Traffic(1e5, 0)),
    ],
    read_s=0.01,
)


def unit(**fields):
    return ResourceType.parse({"name": "t", "price_per_hour": 0.01, "limit": 8} | fields)


def on(entry, trials, host_mbps=None):
    found = totals(trials, JOB)
    return figures(entry, LAYERS, trials[1], TIMES, found, MOVED, JOB, host_mbps)


def test_what_a_step_takes_does_not_parallelise():
    found = totals({1: ONE}, JOB)
    assert found.optimizer_s == pytest.approx(0.4)
    assert found.fit.seconds == pytest.approx(4e-3 * 400 + 0.4)
    assert found.fit.parallel == pytest.approx(0.8)


def test_what_does_not_parallelise_beside_the_step_is_crowding():
    assert totals({1: ONE}, JOB).crowding == 0
    crowded = replace(ONE, forward_s=1.6e-3, backward_s=3.2e-3)
    found = totals({1: ONE, 4: crowded}, JOB)
    longer_s = 0.72 / 3  # for each of three others: 1.6 s of work became 2.32
    assert found.crowding == pytest.approx(longer_s / (1.6 + 0.4), abs=1e-6)


def test_what_more_replicas_do_in_a_commit_is_the_share_of_their_threads():
    trials = {1: ONE, 2: replace(ONE, sync_s=0.3, step_s=ONE.step_s + 0.1)}
    found = totals(trials, JOB)
    assert (found.sync_s, found.summing) == pytest.approx((0.4, 0.25))
    assert totals({1: ONE}, JOB).summing == 0


def test_what_replicas_wait_in_a_commit_synchronises_unless_the_link_is_known():
    trials = {1: ONE, 2: replace(ONE, sync_s=0.3)}
    assert totals(trials, JOB).sync_s == pytest.approx(0.3)
    found = totals(trials, JOB, lambda units: 0.1 * (units - 1))
    assert found.sync_s == pytest.approx(0.1)
    assert found.fit.seconds == pytest.approx(2.0)
    assert found.fit.at(2) == pytest.approx(0.8 + 0.4)


def test_the_layers_of_a_stage_take_together_what_it_takes():
    found = on(unit(), {1: ONE})
    assert 4 * sum(each["compute_s"] for each in found) == pytest.approx(2.0)
    forward, backward, step = 0.1, 0.2, 0.1
    assert found[1]["compute_s"] == pytest.approx(forward / 2 + backward * 3 / 4 + step * 3 / 4)
    assert found[0]["compute_s"] == pytest.approx(forward / 4 + backward / 4 + 0.1)
    assert found[0]["alpha"] == 1
    serial = sum(each["compute_s"] * (1 - each["alpha"]) for each in found)
    assert 4 * serial == pytest.approx(0.4)


def test_asking_for_rows_goes_forward_and_their_gradients_and_the_step_backward():
    rows, fc, _ = on(unit(), {1: ONE})
    assert rows["forward"] == pytest.approx((0.1 / 4 + 0.06) / (0.1 / 4 + 0.2 / 4 + 0.1))
    assert fc["forward"] == pytest.approx((0.1 / 2) / (0.1 / 2 + 0.2 * 3 / 4 + 0.1 * 3 / 4))


def test_what_servers_take_is_shared_and_the_link_is_a_unit_s_own():
    near, far = on(unit(), {1: ONE})[0], on(unit(link_mbps=80.0), {1: ONE})[0]
    assert near["comm_s"] == pytest.approx(0.02 + 0.01)
    assert near["beta"] == pytest.approx(1 / 3)
    assert far["comm_s"] == pytest.approx(0.02 + 0.01 + 0.1)
    assert far["beta"] == pytest.approx(11 / 13)


def test_a_cut_takes_the_link_and_the_thread_of_a_unit():
    assert on(unit(), {1: ONE})[1]["transfer_s"] == pytest.approx(3e-3)
    slow = unit(slowdown=5.0, link_mbps=80.0)
    assert on(slow, {1: ONE})[1]["transfer_s"] == pytest.approx(0.05 + 3e-3)
    assert link_s(unit(link_ms=9.0), 1e6) == 0


def test_a_link_between_hosts_carries_both_ways_at_once():
    rows, fc, _ = on(unit(), {1: ONE}, host_mbps=80.0)
    assert rows["comm_s"] == pytest.approx(0.02 + 0.01 + 0.06)
    assert fc["transfer_s"] == pytest.approx(0.03 + 3e-3)


def test_the_slower_of_an_emulated_link_and_one_between_hosts_is_felt():
    entry = unit(link_mbps=80.0)
    assert on(entry, {1: ONE}, host_mbps=80.0)[1]["transfer_s"] == pytest.approx(0.05 + 3e-3)
    assert on(entry, {1: ONE}, host_mbps=8.0)[1]["transfer_s"] == pytest.approx(0.3 + 3e-3)
