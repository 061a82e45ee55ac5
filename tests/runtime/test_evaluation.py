import json
import shutil

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from heterps.data.ceiling import auc, logloss
from heterps.data.writing import aside
from heterps.errors import InputError
from heterps.job.data import FollowSpec
from heterps.models.layers import LogLoss
from heterps.runtime.evaluation import open_data, planted_ceiling
from heterps.runtime.saved_model import MANIFEST, saving
from heterps.runtime.trained import load_run
from heterps.testing.samples import criteo_line, with_texts
from heterps.testing.trained import HELD, make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    make_run(folder, steps=20)
    return folder


@pytest.fixture
def run(folder):
    return load_run(folder / "run")


def test_predictions_come_in_the_order_of_the_rows(folder, run, tmp_path):
    source = folder / "data/validation"
    assert run.predict([str(source)], tmp_path / "p.parquet") == HELD
    run.predict([str(source)], tmp_path / "p.csv")
    chance = pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    again = pa.csv.read_csv(tmp_path / "p.csv")["prediction"].to_numpy()
    np.testing.assert_allclose(chance, again, rtol=1e-5)
    label = pq.read_table(source)["label"].to_numpy()
    counts = run.evaluate()
    assert counts.samples == HELD
    assert counts.value("auc") == pytest.approx(auc(label, chance), abs=1e-4)
    assert counts.value("logloss") == pytest.approx(logloss(label, chance), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["hdfs", "s3"])
def test_data_and_predictions_may_be_on_a_cluster(folder, run, tmp_path, request, server):
    (source,) = (folder / "data/validation").glob("*.parquet")
    there = request.getfixturevalue(server)
    with aside(f"{there}/new/a.parquet") as local:
        shutil.copy(source, local)
    assert run.predict([f"{there}/new"], f"{there}/out/p.csv") == HELD
    run.predict([str(source)], tmp_path / "p.csv")
    with fsspec.open(f"{there}/out/p.csv", "rb") as written:
        assert written.read() == (tmp_path / "p.csv").read_bytes()


def test_data_need_no_label_to_predict_on(folder, run, tmp_path):
    table = pq.read_table(folder / "data/validation").drop_columns("label")
    pq.write_table(table.slice(0, 7), tmp_path / "new.parquet")
    assert run.predict([str(tmp_path / "new.parquet")], tmp_path / "p.parquet") == 7
    with pytest.raises(InputError, match="label"):
        run.evaluate([str(tmp_path / "new.parquet")])


def test_other_data_can_be_measured_on_and_progress_is_told(folder, run):
    seen = []
    counts = run.evaluate([str(folder / "data/train")], progress=lambda *at: seen.append(at))
    assert counts.samples == 2000
    assert seen == [(2000, 2000)]


def test_a_model_that_draws_is_measured_by_recall(tmp_path):
    run = load_run(make_run(tmp_path, "nce", steps=5, validation={"k": 3}).path)
    counts = run.evaluate()
    assert 0 < counts.value("recall") < 1
    assert counts.value("loss") > 0
    run.predict([str(tmp_path / "data/validation")], tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").column_names == ["prediction", "rank"]


def test_a_model_without_a_task_cannot_be_measured(run, monkeypatch):
    monkeypatch.setattr(LogLoss, "task", "own")
    with pytest.raises(InputError, match="model: has nothing to be measured by"):
        run.evaluate()


def test_bad_arguments_are_refused(folder, run, tmp_path):
    with pytest.raises(InputError, match=r"p\.txt: expected a name that ends in \.parquet or"):
        run.predict([str(folder / "data/train")], tmp_path / "p.txt")
    with pytest.raises(InputError, match="nothing matches 'nowhere'"):
        run.predict(["nowhere"], tmp_path / "p.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_job_without_validation_data_says_so(tmp_path):
    data = {"train": "data/train", "dense": ["I1", "I2"], "sparse": ["C1", "C2", "C3"]}
    run = load_run(make_run(tmp_path, steps=1, data=data).path)
    with pytest.raises(InputError, match="the job names no validation data"):
        run.evaluate()
    assert planted_ceiling(run.job) == {}


def test_the_ceiling_of_made_up_data_is_found(folder, run):
    summary = json.loads((folder / "data/synthetic.json").read_text())
    assert planted_ceiling(run.job) == summary["ceiling"]


def test_batches_are_what_the_model_takes(folder, run):
    model = run.predictor()
    batches = list(run.batches([str(folder / "data/validation")]))
    assert sum(len(model(batch)) for batch in batches) == HELD
    assert "label" not in batches[0]


@pytest.mark.parametrize("act", ["evaluate", "predict", "batches"])
def test_data_with_other_ids_than_those_trained_on_are_refused(folder, run, tmp_path, act):
    path = with_texts(folder / "data/validation", "C2", tmp_path / "new.parquet")
    out = (tmp_path / "p.csv",) if act == "predict" else ()
    with pytest.raises(InputError) as caught:
        list(getattr(run, act)([str(path)], *out))
    assert str(caught.value) == (
        f"data.sparse[1]: column 'C2' of {path} holds texts (string), and the run was trained on "
        "whole numbers, which have other ids: write it as whole numbers"
    )


def test_text_files_are_refused_by_a_model_of_whole_numbers(run, tmp_path):
    (tmp_path / "new.tsv").write_text(criteo_line(0))
    with pytest.raises(InputError, match=r"'C1' of .*new\.tsv holds texts .* the run was trained"):
        run.predict([str(tmp_path / "new.tsv")], tmp_path / "p.csv")


def test_a_model_that_does_not_say_what_it_was_trained_on_takes_any_data(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    model = tmp_path / "run/model"
    with saving(model, {"step": 20}) as saved:
        shutil.copytree(model, saved, dirs_exist_ok=True)
        (saved / MANIFEST).unlink()
    path = with_texts(folder / "data/validation", "C2", tmp_path / "new.parquet")
    assert load_run(tmp_path / "run").evaluate([str(path)]).samples == HELD


def test_a_run_that_followed_a_folder_predicts_on_any_files(folder, run, tmp_path):
    """Without markers, and on all of them."""
    followed = run.job.data.model_copy(update={"follow": FollowSpec()})
    job = run.job.model_copy(update={"data": followed})
    (source,) = (folder / "data/validation").glob("*.parquet")
    both = [shutil.copy(source, tmp_path / name) for name in ("a.parquet", "b.parquet")]
    assert open_data(job, [str(path) for path in both], labels=True).samples == 2 * HELD
