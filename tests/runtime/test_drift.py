"""A run that is far slower than its profile says, in real processes."""

import pytest

from heterps.events import read_events
from heterps.runtime.building import build_model
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import TYPE, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FIGURES = {"compute_s": 1e-4, "alpha": 1.0, "comm_s": 0.0, "transfer_s": 0.0, "beta": 0.0}


def make_job(folder):
    changes = {"workload__epochs": 1000, "workload__min_throughput": 20000, "snapshot__every": 20}
    job = small_job(folder, "two_emb", (1,), **changes)
    shape = {"kind": "dense", "input_bytes": 1, "weight_bytes": 1, "on": {TYPE: FIGURES}}
    layers = [{"name": name, **shape} for name in build_model(job).names]
    profile = {"batch_size": 32, "layers": layers}
    return job.model_copy(update={"profile": profile, "plan": None})


def test_drift_leads_to_a_refitted_profile_and_a_decision(tmp_path, monkeypatch):
    monkeypatch.setattr("heterps.runtime.findings._DRIFT_AFTER_S", 2.0)
    setup, path, stop = prepare(make_job(tmp_path)), tmp_path / "run", Stop()
    notes = []

    def notice(line):
        notes.append(line)
        if "planning again" not in line:
            stop.ask()

    with (
        RunFolder.create(path, setup.job, setup.plan_document()) as folder,
        pytest.raises(KeyboardInterrupt),
    ):
        train_run(setup, folder, make_engine=ForkEngine, stop=stop, notice=notice)
    events = {event["kind"]: event for event in read_events(path / "events.jsonl")}
    assert events["drift"]["ratio"] < 0.7
    found = events.get("replanned") or events.get("plan_kept")
    assert found is not None, notes
    assert found["reason"] == "drift"
    assert found["estimate"]["samples_per_s"] < 0.7 * setup.plan.throughput
