import json

import pytest

from heterps.job.load import load_job
from heterps.runtime.prepare import prepare


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from heterps.cli.main import main

    folder = tmp_path_factory.mktemp("init") / "first"
    assert main(["init", str(folder)]) == 0
    return folder


def test_what_was_written_can_be_trained_in_two_stages(folder):
    setup = prepare(load_job(folder / "job.yaml"))
    assert [stage.type for stage in setup.layout.stages] == ["front", "back"]
    assert setup.job.workload.samples == 120_000
    assert setup.metric == "auc"


@pytest.mark.slow
def test_what_was_written_is_trained_as_it_is(heterps, folder, tmp_path):
    job, out = str(folder / "job.yaml"), str(tmp_path / "run")
    answer = heterps("train", job, "--out", out, "--json").lines[-1]
    assert answer["samples"] == 120_000
    assert answer["metrics"]["auc"] > 0.6


def test_the_folder_is_told_of_and_a_plan_can_be_made(heterps, folder):
    assert {entry.name for entry in folder.iterdir()} == {
        *("job.yaml", "model.py", "cluster.yaml", "profile.json", "data")
    }
    (answer,) = heterps("plan", str(folder / "job.yaml"), "--json").lines
    assert [stage["type"] for stage in answer["stages"]] == ["front", "back"]
    assert json.loads((folder / "profile.json").read_text())["source"] == "made up by heterps init"


def test_a_folder_that_holds_something_is_refused(heterps, folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    result = heterps("init", str(folder))
    assert (result.code, result.out) == (1, "")
    assert "already: name a new or empty folder" in result.err
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_what_comes_next_can_be_pasted_into_a_shell(heterps, tmp_path, monkeypatch):
    monkeypatch.setattr("heterps.cli.starter.write_starter", lambda *_: {"auc": 0.9})
    shown = heterps("init", str(tmp_path / "my job")).out.splitlines()
    assert shown[-1] == f"  heterps train '{tmp_path}/my job/job.yaml'"
