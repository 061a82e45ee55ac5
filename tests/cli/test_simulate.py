import json
from pathlib import Path

import pytest

JOB = str(Path(__file__).parents[2] / "examples" / "clicks" / "job.yaml")
SIZE = ("--set", "workload.samples_per_epoch=100000")


def test_the_text_shows_stages_both_figures_and_a_verdict(heterps):
    result = heterps("simulate", JOB, *SIZE)
    assert (result.code, result.err) == (0, "")
    for part in ("embedding", "samples/s", "formula", "verdict", "staleness 0, 4 micro-batches"):
        assert part in result.out


def test_json_holds_the_plan_and_what_was_found(heterps):
    (line,) = heterps("simulate", JOB, *SIZE, "--staleness", "2", "--json").lines
    assert line["of_predicted"] == line["samples_per_s"] / line["plan"]["throughput"]
    assert len(line["stages"]) == len(line["plan"]["stages"])
    assert line["staleness"] == 2


def test_a_plan_of_a_file_and_a_straggler_count(heterps, tmp_path):
    plan = tmp_path / "plan.json"
    (line,) = heterps("simulate", JOB, *SIZE, "--json").lines
    plan.write_text(json.dumps(line["plan"]))
    slow = heterps("simulate", JOB, *SIZE, "--plan", str(plan), "--slow", "0:0:9", "--json")
    assert slow.lines[0]["samples_per_s"] < line["samples_per_s"]


@pytest.mark.parametrize("given", ["0:1", "a:0:2", "0:0:0", "0:0:2:1", "-1:0:2"])
def test_a_malformed_straggler_is_a_usage_error(heterps, given):
    result = heterps("simulate", JOB, *SIZE, "--slow", given)
    assert result.code == 2
    assert "STAGE:REPLICA:FACTOR" in result.err


def test_a_replica_that_is_not_there_is_an_error_in_one_line(heterps):
    result = heterps("simulate", JOB, *SIZE, "--slow", "7:0:2")
    assert result.code == 1
    assert "there is no replica 0 of stage 7" in result.err


def test_the_plan_shows_the_simulated_figure_where_the_job_cuts_its_batches(heterps, tmp_path):
    job = Path(JOB).parent
    text = Path(JOB).read_text().replace("epochs: 1", "epochs: 1\n  samples_per_epoch: 100000")
    for name in ("cluster.yaml", "profile.json"):
        text = text.replace(f": {name}", f": {job / name}")
    (tmp_path / "job.yaml").write_text(text)
    assert "\nsimulated " in heterps("plan", str(tmp_path / "job.yaml"), "--no-explain").out
    (line,) = heterps("plan", str(tmp_path / "job.yaml"), "--json").lines
    assert 0 < line["simulated"] < line["throughput"]
