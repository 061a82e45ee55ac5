"""``heterps train`` as a person meets it: checked, shown, refused."""

import json

import pytest

from heterps.cli.train_report import live_text, validation_text
from heterps.runtime.prepare import prepare
from heterps.runtime.progress import Status, Validation
from heterps.testing.commands import on_terminal, shell
from heterps.testing.runs import document, make_data, small_job, stages

slow = pytest.mark.slow


@pytest.fixture
def own(tmp_path):
    """A job that validates, as a document."""
    found = document(tmp_path, "ctrdnn")
    found["data"]["validation"] = str(make_data(tmp_path, "clicks") / "validation")
    return found | {"validation": {"every": 20}}


@pytest.fixture
def job(own, write):
    return write(own, "job.json")


@slow
def test_a_dry_run_checks_and_prices_and_starts_nothing(heterps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert heterps("init", "new").code == 0
    shown = heterps("train", "new/job.yaml", "--dry-run")
    assert shown.code == 0
    assert "price  " in shown.out
    assert shown.out.endswith("nothing was started: leave out --dry-run to train\n")
    (found,) = heterps("train", "new/job.yaml", "--dry-run", "--json").lines
    assert found["batches"] > 0
    assert found["dollars_per_hour"] > 0
    assert not (tmp_path / "runs").exists()


@slow
def test_a_run_shows_steps_validations_and_what_came_of_it(job, tmp_path):
    out = tmp_path / "my run"
    shown = shell("train", job, "--out", str(out), "--set", "workload.epochs=2").out.splitlines()
    steps = [line.partition("  ")[0] for line in shown if line.startswith("step ")]
    assert len(steps) == len(set(steps)), "no step is told twice"
    last = steps[-1].removeprefix("step ").split("/")
    assert last[0] == last[1]
    validations = [line for line in shown if line.startswith("validation at step ")]
    assert validations[0].startswith("validation at step 20  AUC 0.")
    assert validations[0].endswith("the best so far")
    heads = [line.partition("  ")[0] for line in shown]
    summary = heads[heads.index("trained") :]
    assert summary[:4] == ["trained", "speed", "validation", "ceiling"]
    assert f"heterps evaluate '{out}'" in shown[-3], "to be pasted into a shell"
    assert json.loads((out / "plan.json").read_text())["stages"][0]["units"] == 1


@slow
def test_validations_stand_above_the_line_that_changes(job, tmp_path):
    shown = on_terminal(
        "train", job, "--out", str(tmp_path / "run"), until="never", then=lambda process: None
    )
    assert shown.code == 0
    assert "validation at step 20  AUC 0." in shown.err
    assert "(validation 0." in shown.err


def test_the_line_that_changes_says_how_it_stands(tmp_path):
    setup = prepare(small_job(tmp_path, "ctrdnn"))
    status = Status(3, 9, 96, 1234.5, 0.5, {"auc": 0.7}, (0.25,), 0.001, 2.0, {})
    assert (
        live_text(setup, status) == "1,234 samples/s  loss 0.5000  AUC 0.7000  busy 25%  $0.00100"
    )
    found = Validation(3, {"auc": 0.75, "loss": 0.4, "logloss": 0.4}, better=False)
    assert validation_text(setup, found) == "validation at step 3  AUC 0.7500, log-loss 0.4000"


@slow
def test_a_plan_from_a_file_is_run(job, own, write, tmp_path):
    layers = own["plan"]["stages"][0]["last"] + 1
    plan = write(stages(layers, (2,), (2, 1)), "plan.json")
    out = tmp_path / "run"
    assert shell("train", job, "--plan", plan, "--out", str(out), "--json").code == 0
    kept = json.loads((out / "plan.json").read_text())["stages"]
    assert [stage["units"] for stage in kept] == [2, 1]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"stages": [{"first": 0, "last": 1, "type": "cpu", "units": 1}]}, "plan"),
        ({"stages": [{"first": 0, "last": 99, "type": "cpu", "units": 1}]}, "plan"),
        ({"stages": []}, "plan"),
        ([], "plan"),
    ],
    ids=["too short", "too long", "empty", "no plan at all"],
)
def test_a_plan_that_does_not_fit_is_refused_by_the_name_of_its_file(
    heterps, job, write, tmp_path, plan, said
):
    found = heterps("train", job, "--plan", write(plan, "bad.json"), "--out", str(tmp_path / "run"))
    assert (found.code, found.out) == (1, "")
    assert len(found.err.splitlines()) == 1
    assert "bad.json" in found.err
    assert said in found.err
    assert not (tmp_path / "run").exists()


def test_a_change_of_a_field_that_is_not_there_suggests_the_nearest(heterps, job):
    found = heterps("train", job, "--set", "workload.epoch=2", "--dry-run")
    assert found.code == 1
    assert "workload.epochs" in found.err or "'epochs'" in found.err
