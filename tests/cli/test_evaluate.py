import json

import pyarrow.parquet as pq
import pytest

from heterps.testing.trained import make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    make_run(folder, steps=20)
    return folder


def test_evaluate_shows_the_figures_beside_the_ceiling(heterps, folder):
    result = heterps("evaluate", str(folder / "run"))
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0] == f"{folder}/run: the model after step 20 on 500 samples"
    assert [line[:20].strip() for line in lines[1:]] == [
        *("AUC", "log-loss", "normalised entropy", "calibration")
    ]
    assert "(ceiling 0." in lines[1]


def test_evaluate_answers_in_json_also_about_other_data(heterps, folder):
    where = str(folder / "data/train")
    (answer,) = heterps("evaluate", str(folder / "run"), "--data", where, "--json").lines
    assert answer["samples"] == 2000
    assert 0.5 < answer["auc"] < 1
    assert (answer["model"], answer["step"], answer["ceiling"]) == ("model", 20, {})


def test_recall_is_shown_with_its_k(heterps, tmp_path):
    make_run(tmp_path, "nce", steps=2, validation={"k": 3})
    result = heterps("evaluate", str(tmp_path / "run"))
    assert [line.split("  ")[0] for line in result.out.splitlines()[1:]] == ["recall@3", "loss"]


def test_a_run_without_the_model_that_was_asked_for_is_an_error_in_one_line(heterps, folder):
    result = heterps("evaluate", str(folder / "run"), "--best")
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1
    assert "best: holds no whole model" in result.err


def test_predict_writes_a_row_for_each_row(heterps, folder, tmp_path):
    args = ("predict", str(folder / "run"), str(folder / "data/validation"), "--out")
    result = heterps(*args, str(tmp_path / "p.parquet"))
    assert result.out == f"{tmp_path}/p.parquet: 500 predictions\n"
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 500
    again = heterps(*args, str(tmp_path / "p.parquet"))
    assert "exists already; --force overwrites it" in again.err
    forced = heterps(*args, str(tmp_path / "p.parquet"), "--force", "--json")
    assert json.loads(forced.out)["rows"] == 500


def test_data_that_are_not_there_are_named_as_they_were_given(heterps, folder, tmp_path):
    run, none = str(folder / "run"), str(tmp_path / "none.parquet")
    predicted = heterps("predict", run, none, "--out", str(tmp_path / "p.csv"))
    assert predicted.err == f"heterps: DATA: nothing matches '{none}': check the path\n"
    measured = heterps("evaluate", run, "--data", none)
    assert measured.err == f"heterps: --data: nothing matches '{none}': check the path\n"


@pytest.mark.parametrize("command", ["evaluate", "predict", "runs", "init"])
def test_help_teaches_by_example(heterps, command):
    result = heterps(command, "--help")
    assert result.code == 0
    assert f"heterps {command}" in result.out
    assert "Examples:" in result.out
