"""Real processes on emulated units learn what they learn on real ones."""

import json

import pytest

from heterps.events import read_events
from heterps.runtime.prepare import prepare
from heterps.runtime.training import demand_of
from heterps.testing.runs import TYPE, run, small_job

EMULATED = {"name": TYPE, "price_per_hour": 0.04, "limit": 16, "slowdown": 2.0}
LINK = {"link_mbps": 200.0, "link_ms": 0.5}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [(2, 1), (1, 2)])
def test_an_emulated_plan_ends_where_the_real_one_does(data, tmp_path, replicas):
    changes = {"cluster__types": [EMULATED | LINK]}
    _, real = run(small_job(data, "two_emb", replicas), tmp_path / "real")
    _, slow = run(small_job(data, "two_emb", replicas, **changes), tmp_path / "slow")
    assert slow.equals(real)


def demand(data, **changes):
    return demand_of(prepare(small_job(data, "ctrdnn", (2, 1), **changes)))


def test_a_run_counts_its_units_by_their_slowdown_and_its_servers(data):
    assert demand(data, servers__count=2).busy == 3 + 2
    assert demand(data, cluster__types=[EMULATED]).busy == 1.5 + 1


@pytest.mark.slow
def test_an_oversubscribed_run_says_so(data, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    result, _ = run(small_job(data, "two_emb"), tmp_path / "run")
    assert result.oversubscribed
    events = {event["kind"]: event for event in read_events(tmp_path / "run" / "events.jsonl")}
    assert (events["oversubscribed"]["busy"], events["oversubscribed"]["cores"]) == (2, 1)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["oversubscribed"] is True


@pytest.mark.slow
def test_a_link_carries_numbers_as_they_travel(data, tmp_path):
    def link_s(folder, wire):
        changes = {"cluster__types": [EMULATED | LINK], "wire": wire}
        run(small_job(data, "ctrdnn", (1, 1), **changes), folder)
        last = [e for e in read_events(folder / "events.jsonl") if e["kind"] == "progress"][-1]
        return [stage["link_s"] for stage in last["stages"]]

    wide = link_s(tmp_path / "wide", {})
    narrow_rows = link_s(tmp_path / "rows", {"rows": "fp16"})
    narrow = link_s(tmp_path / "both", {"rows": "bf16", "activations": "bf16"})
    assert narrow[0] < narrow_rows[0] < wide[0]
    assert narrow[1] < 0.6 * wide[1]


@pytest.mark.slow
def test_staleness_and_validation_end_on_emulated_links(data, tmp_path):
    changes = {"cluster__types": [EMULATED | LINK], "workload__staleness": 2}
    plain = small_job(data, "ctrdnn", (1, 3, 2), **changes)
    job = small_job(data, "ctrdnn", (1, 3, 2), data__validation=list(plain.data.train), **changes)
    result, found = run(job, tmp_path / "run")
    assert len(found.losses) == result.steps == prepare(job).layout.batches
    assert 0 <= result.metrics["auc"] <= 1
