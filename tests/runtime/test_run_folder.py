import json
import os
import stat
import subprocess
import sys

import pytest
import yaml

from heterps.errors import InputError
from heterps.events import read_events
from heterps.job.spec import Job
from heterps.runtime.run_folder import RunFolder

DOCUMENT = {
    "cluster": {"types": [{"name": "cpu", "price_per_hour": 0.04, "limit": 4}]},
    "workload": {"batch_size": 64, "epochs": 1},
    "data": {"train": "d/*.parquet", "dense": ["I1"], "sparse": ["C1"]},
    "profile": {"layers": [], "batch_size": 1},
    "model": {"file": "my.py", "args": {"hidden": [4, 4], "rate": None}},
    "seed": 3,
}
PLAN = {"assignment": ["cpu"], "throughput": None}


@pytest.fixture
def job(tmp_path):
    (tmp_path / "my.py").write_text("# a model\n")
    return Job.parse(DOCUMENT).in_folder(tmp_path)


def test_a_new_folder_holds_what_went_in(tmp_path, job):
    with RunFolder.create(tmp_path / "run", job, PLAN) as run:
        names = {entry.name for entry in run.path.iterdir()}
        assert names == {
            *("job.yaml", "plan.json", "profile.json", "versions.json", "code"),
            *("key", "lock", "logs", "identity.json"),
        }
        assert stat.S_IMODE((run.path / "key").stat().st_mode) == 0o600
        assert len(run.key) == 32
        assert run.plan == PLAN
        assert {"heterps", "torch", "python"} <= json.loads(
            (run.path / "versions.json").read_text()
        ).keys()


def test_the_job_reads_back_with_its_own_copy_of_the_model(tmp_path, job):
    RunFolder.create(tmp_path / "run", job, PLAN).close()
    (tmp_path / "my.py").unlink()
    again = RunFolder.open(tmp_path / "run").job
    assert again.model == {"file": "code/my.py", "args": DOCUMENT["model"]["args"]}
    assert again.path("code/my.py") == str(tmp_path / "run/code/my.py")
    assert again.data.train == (str(tmp_path / "d/*.parquet"),)
    assert (again.profile, again.plan, again.seed) == (DOCUMENT["profile"], PLAN, 3)


def test_the_name_is_made_from_model_and_time(tmp_path, job, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [RunFolder.create(None, job) for _ in range(2)]
    assert len({run.path for run in runs}) == 2
    assert all(str(run.path).startswith("runs/my-20") for run in runs)
    for run in runs:
        run.close()


def test_a_folder_that_holds_something_is_refused(tmp_path, job):
    (tmp_path / "run").mkdir()
    RunFolder.create(tmp_path / "run", job).close()
    with pytest.raises(InputError, match=r"run: holds '.*' already: a run needs a new or empty"):
        RunFolder.create(tmp_path / "run", job)


def test_a_model_that_cannot_be_copied_is_named(tmp_path, job):
    (tmp_path / "my.py").unlink()
    with pytest.raises(InputError, match=r"model\.file: .*my\.py cannot be read"):
        RunFolder.create(tmp_path / "run", job)


@pytest.mark.slow
def test_one_process_coordinates(tmp_path, job):
    code = (
        "import sys; from heterps.runtime.run_folder import RunFolder\n"
        "try: RunFolder.open(sys.argv[1]).lock()\n"
        "except Exception as error: print(error)"
    )
    command = [sys.executable, "-c", code, os.fspath(tmp_path / "run")]
    with RunFolder.create(tmp_path / "run", job):
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "is coordinated by another process already" in said
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_events_and_the_result_are_written(tmp_path, job):
    with RunFolder.create(tmp_path / "run", job) as run:
        with run.events() as events:
            events.write("step", batch=1)
        run.finish({"auc": float("nan"), "samples": 10})
    (event,) = read_events(tmp_path / "run/events.jsonl")
    assert event["batch"] == 1
    result = json.loads((tmp_path / "run/metrics.json").read_text())
    assert result == {"auc": None, "samples": 10}


def test_any_other_folder_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"is no run folder: it holds no job\.yaml"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("mark", ["identity.json", "events.jsonl", "versions.json", "snapshots/"])
def test_a_job_alone_makes_no_run_folder(tmp_path, mark):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(DOCUMENT))
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    said = r"is no run folder: it holds a job\.yaml that no run has written"
    with pytest.raises(InputError, match=said):
        RunFolder.open(tmp_path)
    (tmp_path / mark).mkdir() if mark.endswith("/") else (tmp_path / mark).touch()
    RunFolder.open(tmp_path)
