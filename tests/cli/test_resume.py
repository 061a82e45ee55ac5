"""The commands as a person uses them, after the worst."""

import json
import os
import signal

import pytest
import yaml

from heterps.report.runs import find_runs
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.snapshot import Snapshots
from heterps.testing.leftovers import await_no_processes
from heterps.testing.live_runs import LiveRun
from heterps.testing.runs import outcome, run, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def job(tmp_path):
    changes = {"workload__epochs": 12, "snapshot__every": 20, "servers__count": 2}
    return small_job(tmp_path, "two_emb", (2, 1), **changes)


@pytest.fixture
def live(job, tmp_path):
    found = LiveRun(job, tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_killed_then_interrupted_a_run_still_ends_as_it_should(
    live, job, tmp_path, heterps, number
):
    live.until("snapshot", 2)
    live.kill()
    live.resume()
    live.until("snapshot")
    live.coordinator.send_signal(number)
    code, said = live.ended()
    assert code == 128 + number, said
    assert [run.state for run in find_runs(live.path)] == ["stopped"]
    step = Snapshots(live.path).last_step
    advice = f"there is a snapshot of step {step:,}; go on with: heterps resume {live.path}"
    assert said.splitlines()[-1] == f"interrupted; {advice}"
    assert await_no_processes(live.path) == []
    live.resume("--json")
    code, said = live.ended()
    assert code == 0, said
    assert json.loads(said)["steps"] == 336
    assert outcome(RunFolder.open(live.path)).equals(run(job, tmp_path / "whole")[1])
    check_snapshot_commands(live.path, heterps)


def test_a_run_whose_every_process_is_told_to_end_leaves_a_snapshot_of_the_moment(tmp_path):
    """As systemd does it, and Slurm."""
    changes = {"workload__epochs": 12, "snapshot__every_s": 0, "servers__count": 2}
    live = LiveRun(small_job(tmp_path, "two_emb", (2, 1), **changes), tmp_path)
    try:
        live.until("progress", 2)
        told = live.processes()
        for pid in (*told.values(), live.coordinator.pid):
            os.kill(pid, signal.SIGTERM)
        code, said = live.ended()
        assert (len(told), code) == (5, 143), said
        step = Snapshots(live.path).last_step
        assert 0 < step < 336
        assert f"there is a snapshot of step {step:,}; go on with" in said
        assert await_no_processes(live.path) == []
        live.resume("--json")
        code, said = live.ended()
        assert code == 0, said
        assert json.loads(said)["steps"] == 336
        assert json.loads(said)["failures"] == 0
    finally:
        live.close()


def check_snapshot_commands(path, heterps):
    listed = json.loads(heterps("snapshot", "list", str(path), "--json").out)["snapshots"]
    assert [row["step"] for row in listed][:3] == [320, 300, 280]
    assert [row["delta_of"] for row in listed].count(None) == 2, "the newest whole one, another"
    assert "step-00000320" in heterps("snapshot", "list", str(path)).out
    assert heterps("snapshot", "verify", str(path)).code == 0
    (path / "snapshots/step-00000300/dense.safetensors").write_bytes(b"")
    found = heterps("snapshot", "verify", str(path))
    assert found.code == 1
    lines = found.out.splitlines()
    assert [line.split()[1] for line in lines][:3] == ["whole", "snapshot", "whole"]
    assert "has changed since it was written" in lines[1]


@pytest.mark.parametrize("command", [["resume"], ["scale"], ["report"], ["snapshot", "list"]])
def test_the_folder_of_a_job_is_taken_for_no_run(job, tmp_path, heterps, command):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job.document()))
    before = set(tmp_path.iterdir())
    found = heterps(*command, str(tmp_path), *(["cpu=2"] if command == ["scale"] else []))
    assert (found.code, found.out) == (1, "")
    assert "is no run folder: it holds a job.yaml that no run has written" in found.err
    assert set(tmp_path.iterdir()) == before


def test_a_second_interrupt_stops_at_once(tmp_path):
    slow = {"name": "cpu", "price_per_hour": 0.04, "limit": 16, "slowdown": 200}
    live = LiveRun(small_job(tmp_path, "two_emb", (1,), cluster__types=[slow]), tmp_path)
    try:
        live.until("progress")
        live.coordinator.send_signal(signal.SIGINT)
        live.until("stopping")
        live.coordinator.send_signal(signal.SIGINT)
        code, said = live.ended()
    finally:
        live.close()
    assert code == 130, said
    assert said.splitlines()[-1].startswith("interrupted; there is no snapshot; begin again with")
    assert await_no_processes(live.path) == []
