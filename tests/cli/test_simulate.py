import json
from pathlib import Path

import pytest

JOB = str(Path(__file__).parents[2] / "examples" / "clicks" / "job.yaml")
SIMULATED = ("--simulated",)
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


def cut_job(folder):
    """The example with a number of samples."""
    job = Path(JOB).parent
    text = Path(JOB).read_text().replace("epochs: 1", "epochs: 1\n  samples_per_epoch: 100000")
    for name in ("cluster.yaml", "profile.json"):
        text = text.replace(f": {name}", f": {job / name}")
    (folder / "job.yaml").write_text(text)
    return str(folder / "job.yaml")


def test_the_plan_shows_the_simulated_figure_where_the_job_cuts_its_batches(heterps, tmp_path):
    job = cut_job(tmp_path)
    assert "\nsimulated " in heterps("plan", job, "--no-explain").out
    (line,) = heterps("plan", job, "--json").lines
    assert 0 < line["simulated"] < line["throughput"]


def test_a_plan_may_be_chosen_by_the_simulator(heterps, tmp_path):
    job = cut_job(tmp_path)
    result = heterps("plan", job, "--simulated")
    assert result.code == 0
    assert "\nat that speed " in result.out
    assert "nothing is proven about cheaper plans" in result.out
    (plain,), (line,) = (heterps("plan", job, *more, "--json").lines for more in ([], SIMULATED))
    assert line["method"] == "simulated"
    by_simulator = plain["cost"] * plain["throughput"] / plain["simulated"]
    assert line["simulated_cost"] <= by_simulator * (1 + 1e-6)
    assert line["simulated_cost"] == pytest.approx(
        line["cost"] * line["throughput"] / line["simulated"]
    )


def test_choosing_by_the_simulator_needs_batches_that_are_cut_and_goes_alone(heterps):
    problem = str(Path(__file__).parents[1] / "cases" / "ctrdnn16-cpu-v100-mid.json")
    result = heterps("plan", problem, "--simulated")
    assert result.code == 1
    assert "workload.micro_batches: is missing" in result.err
    assert heterps("plan", problem, "--simulated", "--compare").code == 2
