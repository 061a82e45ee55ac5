import json
from pathlib import Path

import pytest

from heterps.errors import InputError
from heterps.events import EventLog
from heterps.job.spec import Job
from heterps.report.runs import find_runs, summarise
from heterps.runtime.run_folder import RunFolder

JOB = Job.parse(
    {
        "cluster": {"types": [{"name": "cpu", "price_per_hour": 0.04, "limit": 4}]},
        "workload": {"batch_size": 64, "epochs": 1, "samples_per_epoch": 100},
        "model": {"zoo": "ctrdnn"},
    }
)
PROGRESS = {"step": 7, "samples_per_s": 900.0, "dollars": 0.1, "metrics": {"auc": 0.6}}


def make(path: Path, *events: tuple[str, dict[str, object]]) -> RunFolder:
    run = RunFolder.create(path, JOB)
    with EventLog(path / "events.jsonl") as log:
        for kind, fields in events:
            log.write(kind, **fields)
    return run


def test_a_run_that_goes_on_tells_its_last_figures(tmp_path):
    with make(tmp_path / "a", ("started", {}), ("progress", PROGRESS)):
        seen = summarise(tmp_path / "a")
    assert (seen.state, seen.model, seen.steps) == ("running", "ctrdnn", 7)
    assert (seen.samples_per_s, seen.dollars) == (900.0, 0.1)
    assert (seen.metric, seen.value, seen.progressive) == ("auc", 0.6, True)


def test_a_run_that_ended_tells_its_result_and_validation(tmp_path):
    events = [("progress", PROGRESS), ("validated", {"metrics": {"auc": 0.7}})]
    run = make(tmp_path / "a", *events, ("progress", PROGRESS), ("ended", {}))
    run.finish({"steps": 9, "samples_per_s": 1000.0, "dollars": 0.2})
    run.close()
    seen = summarise(tmp_path / "a")
    assert (seen.state, seen.steps, seen.samples_per_s, seen.dollars) == ("done", 9, 1000.0, 0.2)
    assert (seen.metric, seen.value, seen.progressive) == ("auc", 0.7, False)


@pytest.mark.parametrize(
    ("event", "state"), [("interrupted", "stopped"), ("failed", "failed"), ("ready", "lost")]
)
def test_how_a_run_ended_is_told(tmp_path, event, state):
    make(tmp_path / "a", ("started", {}), (event, {})).close()
    seen = summarise(tmp_path / "a")
    assert seen.state == state
    assert (seen.steps, seen.metric, seen.value, seen.dollars) == (None, None, None, None)


def test_a_run_that_was_resumed_and_lost_is_lost(tmp_path):
    make(tmp_path / "a", ("interrupted", {}), ("resumed", {})).close()
    assert summarise(tmp_path / "a").state == "lost"


def test_damaged_files_are_left_out(tmp_path):
    make(tmp_path / "a").close()
    (tmp_path / "a/metrics.json").write_text("[1")
    (tmp_path / "a/job.yaml").write_text("model: [")
    (tmp_path / "a/events.jsonl").write_bytes(b'\xff{"kind"\n[]\n{"kind": "progress", "step": "x"}')
    seen = summarise(tmp_path / "a")
    assert (seen.state, seen.model, seen.steps) == ("lost", "?", None)
    (tmp_path / "a/lock").unlink()
    assert summarise(tmp_path / "a").state == "lost"


def test_runs_of_a_folder_come_oldest_first_and_only_they(tmp_path):
    for name in ("b", "a"):
        make(tmp_path / name, ("started", {})).close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/job.yaml").write_text("model: {zoo: nce}")
    (tmp_path / "file").write_text("")
    events = tmp_path / "b/events.jsonl"
    events.write_text(json.dumps({"kind": "started", "time": 5}) + "\n")
    assert [run.name for run in find_runs(tmp_path)] == ["b", "a"]
    assert [run.name for run in find_runs(tmp_path / "a")] == ["a"]
    with pytest.raises(InputError, match="nowhere: cannot be read"):
        find_runs(tmp_path / "nowhere")
