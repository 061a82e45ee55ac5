import shutil

import pytest
import torch

import heterps
from heterps.errors import InputError, ModelError, SnapshotError, UnknownNameError
from heterps.models.context import Context
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.saved_model import save_dense, saving
from heterps.runtime.trained import SnapshotRows, load_run
from heterps.testing.trained import make_run

BATCH = {
    "dense": torch.rand(4, 2),
    **{slot: torch.tensor([1, 2, 3, 4]) for slot in ("C1", "C2", "C3")},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return make_run(tmp_path_factory.mktemp("trained"))


def test_the_model_of_a_run_is_a_torch_module(run):
    predictor = heterps.load_run(run.path).predictor()
    assert isinstance(predictor, torch.nn.Module)
    chance = predictor(BATCH)
    assert chance.shape == (4,)
    assert ((chance > 0) & (chance < 1)).all()
    assert not predictor.training


def test_job_plan_and_task_come_along(run):
    found = load_run(run.path)
    assert found.job.model["zoo"] == "ctrdnn"
    assert found.plan == {"method": "given", "stages": []}
    assert found.task == "binary"
    whole = dict.fromkeys(["C1", "C2", "C3"], "whole numbers")
    assert found.about() == {"step": 20, "slots": whole}
    assert found.metrics == {}


def test_rows_are_those_of_the_snapshot_and_first_ones_for_ids_never_seen(run):
    rows = SnapshotRows(run.model / "tables")
    trained = len(rows)
    seen = load_run(run.path)
    unseen = torch.tensor([2**40, 2**40 + 1])
    given = rows.pull("default", unseen)
    assert given.shape == (2, 4)
    assert (given.abs() < 0.01).all()
    assert torch.equal(given, seen.predictor()._held[1].pull("default", unseen))
    assert len(rows) == trained > 100
    with pytest.raises(UnknownNameError, match="unknown table of the run 'other'"):
        rows.pull("other", unseen)


def test_a_bound_on_memory_does_not_change_what_is_predicted(run):
    bounded = SnapshotRows(run.model / "tables", memory_bytes={"default": 1 << 20})
    ids = torch.arange(100)
    plain = SnapshotRows(run.model / "tables")
    assert torch.equal(bounded.pull("default", ids), plain.pull("default", ids))


@pytest.mark.parametrize("zoo", ["ctrdnn", "nce"])
def test_a_job_in_double_precision_predicts_so(tmp_path, zoo):
    found = load_run(make_run(tmp_path, zoo, steps=2, dtype="float64").path)
    chain = found.predictor()._held[0]
    assert {weight.dtype for weight in chain.parameters()} == {torch.float64}
    bags = {"history": torch.arange(3), "history.offsets": torch.tensor([0, 2, 3])}
    batch = BATCH if zoo == "ctrdnn" else {**bags, "item": torch.tensor([1, 2])}
    assert found.predictor()(batch).dtype == torch.float64


def test_draws_of_a_prediction_depend_on_the_seed_of_the_job(tmp_path):
    found = load_run(make_run(tmp_path, "nce", steps=1, seed=5).path)
    assert found.predictor().seed == 5
    assert Context(5).key() != Context(0).key()


def test_what_is_missing_or_does_not_fit_is_named(tmp_path, run):
    with pytest.raises(InputError, match="is no run folder"):
        load_run(tmp_path)
    with pytest.raises(SnapshotError, match="holds no whole model"):
        load_run(run.path).predictor("best")
    with saving(run.path / "best") as folder:
        save_dense(folder, {"fc1.weight": torch.zeros(2, 2)})
    with pytest.raises(ModelError, match="does not fit the model of the job") as caught:
        load_run(run.path).predictor("best")
    assert "\n" not in str(caught.value)


def test_a_model_that_is_not_there_yet_is_told_with_what_to_do(tmp_path):
    run = make_run(tmp_path, steps=1)
    shutil.rmtree(run.model)
    said = "model: holds no whole model: the run has not ended$"
    with pytest.raises(SnapshotError, match=said):
        load_run(run.path).predictor()
    (run.path / "snapshots/step-00000007").mkdir(parents=True)
    with saving(run.best):
        pass
    with run.events() as events:
        events.write("interrupted", step=8)
    goes_on = f"`heterps resume {run.path}` goes on"
    said = f"the run was stopped at step 8; {goes_on}; --best takes the best model so far$"
    with pytest.raises(SnapshotError, match=said):
        load_run(run.path).about()
    with pytest.raises(SnapshotError, match="best: holds no whole model: no validation of the run"):
        load_run(make_run(tmp_path / "other", steps=1).path).about("best")
