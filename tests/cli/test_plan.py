import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
JOB = str(ROOT / "examples" / "ctrdnn" / "job.yaml")
WORKED = str(ROOT / "examples" / "planning" / "problem.json")
MID = str(CASES / "ctrdnn16-cpu-v100-mid.json")
LIMIT = str(CASES / "infeasible-limit.json")
SLOW = str(CASES / "infeasible-throughput.json")

PLAN_KEYS = {
    *("method", "assignment", "stages", "throughput", "seconds", "cost", "lower_bound", "gap"),
    *("evaluations", "planning_s"),
}

Document = dict[str, Any]


def worked() -> Document:
    return json.loads(Path(WORKED).read_text())


def test_the_text_shows_stages_totals_certainty_and_reasons(heterps):
    result = heterps("plan", JOB, "--method", "exact")
    assert (result.code, result.err) == (0, "")
    for part in (
        "embedding..concat (3)     cpu      73",
        "batch_norm..softmax (13)  v100      4",
        "741,040 samples/s (floor 707,000)",
        "$0.2165, $0.004723 per million samples",
        "proven optimal",
        "stage 1 on v100 sets the pace, bound by communication",
        "one more cpu (limit 481) or v100 (limit 33): no change",
        "10 % less throughput (floor 636,300): $0.03492 less (16.1 %)",
        "+$0.1189  +54.9 %  48 cpu: embedding..batch_norm (4) | 7 v100: fc1..softmax (12)",
    ):
        assert part in result.out


def test_a_field_of_the_job_can_be_changed_for_once(heterps):
    (line,) = heterps("plan", JOB, "--json", "--set", "workload.min_throughput=500000").lines
    assert line["cost"] < 0.2 < json.loads(heterps("plan", JOB, "--json").out)["cost"]
    result = heterps("plan", "--problem", WORKED, "--set", "seed=1")
    assert result.code == 1
    assert "--set: changes a job, and " in result.err


def test_json_is_one_line_with_the_keys_of_a_plan(heterps):
    result = heterps("plan", MID, "--method", "exact", "--json")
    (line,) = result.lines
    assert line.keys() >= PLAN_KEYS
    assert line["cost"] == pytest.approx(json.loads(Path(MID).read_text())["expect"]["cost"])
    assert line["gap"] == 0
    assert line["planning_s"] > 0
    first, second = line["stages"]
    assert (first["first"], first["last"], second["first"], second["last"]) == (0, 2, 3, 15)


def test_the_default_method_proves_the_optimum(heterps):
    (line,) = heterps("plan", MID, "--json").lines
    assert (line["method"], line["gap"]) == ("auto", 0)


def test_the_explanation_is_added_to_json_on_request(heterps):
    (line,) = heterps("plan", MID, "--method", "exact", "--json", "--explain").lines
    assert line["explanation"]["binding"] == {"stage": 1, "by": "communication"}


def test_a_method_without_proof_says_so_and_names_the_better_plan(heterps):
    result = heterps("plan", MID, "--method", "single-type")
    assert "nothing is proven about cheaper plans" in result.out
    assert "less (57.5 %) with the plan of --method auto" in result.out


def test_a_time_budget_of_zero_still_gives_a_plan(heterps):
    (line,) = heterps("plan", MID, "--method", "exact", "--time-budget", "0", "--json").lines
    assert line["cost"] >= line["lower_bound"]


def test_a_plan_is_written_to_a_file(heterps, tmp_path: Path):
    out = tmp_path / "plan.json"
    (line,) = heterps("plan", MID, "--method", "exact", "--json", "--out", str(out)).lines
    del line["problem"]
    assert json.loads(out.read_text()) == line


def test_a_file_that_cannot_be_written_is_an_error(heterps, tmp_path: Path):
    result = heterps("plan", MID, "--method", "exact", "--out", str(tmp_path))
    assert result.code == 1
    assert "cannot be written" in result.err


def test_overhead_and_a_missing_floor_are_shown(heterps, write):
    document = worked()
    document["workload"]["overhead_per_hour"] = 1.0
    del document["workload"]["min_throughput"]
    out = heterps("plan", write(document), "--method", "exact").out
    assert "of it overhead" in out
    assert "(no floor)" in out
    assert "10 % less" not in out


def test_a_model_that_takes_no_time_is_planned(heterps, write):
    free = {"compute_s": 0, "comm_s": 0, "alpha": 1, "beta": 1, "transfer_s": 0}
    document = worked()
    for layer in document["profile"]["layers"]:
        layer["on"] = {"cpu": free}
    path = write(document)
    assert "no stage takes any time" in heterps("plan", path, "--method", "exact", "--frontier").out
    (line,) = heterps("plan", path, "--method", "exact", "--json").lines
    assert (line["throughput"], line["cost"], line["gap"]) == (None, 0, 0)


def test_a_given_assignment_gets_its_cheapest_units(heterps):
    (line,) = heterps("plan", WORKED, "--assignment", "cpu, gpu", "--json").lines
    assert [stage["units"] for stage in line["stages"]] == [14, 2]
    assert line["cost"] == pytest.approx(2.508)
    assert (line["method"], line["lower_bound"], line["gap"]) == ("assignment", None, None)


@pytest.mark.parametrize(
    ("assignment", "code", "message"),
    [
        ("cpu,gpux", 1, "assignment[1]: unknown resource type 'gpux' (known: cpu, gpu); did you"),
        ("cpu", 1, "assignment: names 1 types for 2 layers"),
        ("", 1, "assignment: names 1 types for 2 layers"),
        ("gpu,gpu", 3, "no feasible plan (throughput)"),
    ],
)
def test_a_bad_assignment_is_refused(heterps, assignment: str, code: int, message: str):
    result = heterps("plan", WORKED, "--assignment", assignment)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


@pytest.mark.parametrize(
    "files",
    [
        ("--problem", MID, WORKED),
        ("--problem", MID, "--problem", WORKED),
        (f"--problem={MID}", f"--problem={WORKED}"),
        (MID, "--problem", WORKED),
        (MID, WORKED),
    ],
)
def test_several_files_give_a_line_each_in_their_order(heterps, files: tuple[str, ...]):
    result = heterps("plan", *files, "--method", "exact", "--json")
    assert result.code == 0
    assert [line["problem"] for line in result.lines] == [MID, WORKED]


def test_all_files_are_answered_and_an_error_outweighs_infeasibility(heterps):
    files = (MID, "nowhere.json", LIMIT, WORKED)
    result = heterps("plan", "--problem", *files, "--method", "exact", "--json")
    assert result.code == 1
    assert ["cost" in line for line in result.lines] == [True, False, False, True]
    assert result.lines[1]["error"].startswith("nowhere.json: cannot be read")
    assert result.lines[2]["infeasible"] == "limit"
    assert result.err.count("\n") == 1


def test_infeasibility_outweighs_success(heterps):
    result = heterps("plan", "--problem", LIMIT, WORKED, "--method", "exact")
    assert result.code == 3
    assert WORKED in result.out


@pytest.mark.parametrize("reason", ["layer", "limit", "memory", "throughput"])
def test_an_infeasible_problem_gives_its_reason(heterps, reason: str):
    path = str(CASES / f"infeasible-{reason}.json")
    expected = json.loads(Path(path).read_text())["expect"]
    result = heterps("plan", path, "--method", "exact", "--json")
    (line,) = result.lines
    assert (result.code, result.err) == (3, "")
    assert line["infeasible"] == expected["infeasible"] == reason
    if reason == "throughput":
        assert line["max_throughput"] == pytest.approx(expected["max_throughput"])
    else:
        assert line["max_throughput"] is None


def test_as_text_infeasibility_is_one_line_with_the_best_reachable_value(heterps):
    result = heterps("plan", SLOW, "--method", "exact")
    assert (result.code, result.out) == (3, "")
    assert result.err.count("\n") == 1
    assert "workload.min_throughput is 1.23693e+06 samples/s, and 1.17803e+06" in result.err
