from heterps.events import EventLog
from heterps.testing.trained import make_run


def test_runs_are_listed_with_their_figures(heterps, tmp_path):
    path = make_run(tmp_path, steps=1).path
    with EventLog(path / "events.jsonl") as log:
        log.write("progress", step=1200, samples_per_s=9000.0, metrics={"auc": 0.75}, dollars=0.5)
        log.write("failed")
    result = heterps("runs", str(tmp_path))
    assert result.out.splitlines() == [
        "name  state   model   steps  samples/s  result                  dollars",
        "run   failed  ctrdnn  1,200      9,000  AUC 0.7500 progressive     $0.5",
    ]
    (line,) = heterps("runs", str(tmp_path), "--json").lines
    assert (line["name"], line["state"], line["value"]) == ("run", "failed", 0.75)


def test_where_there_are_none_the_next_step_is_told(heterps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = heterps("runs")
    assert (result.code, result.err) == (0, "")
    assert result.out == "runs holds no runs; heterps train JOB makes one in runs/\n"
    assert heterps("runs", "--json").out == ""
    missing = heterps("runs", "elsewhere")
    assert (missing.code, missing.err) == (
        *(1,),
        "heterps: elsewhere: cannot be read (No such file or directory)\n",
    )
