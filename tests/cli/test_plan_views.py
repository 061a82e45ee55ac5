import json
from pathlib import Path

import pytest

from heterps.cli import compare
from heterps.planning.schedulers import METHODS

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
WORKED = str(ROOT / "examples" / "planning" / "problem.json")
MID = str(CASES / "ctrdnn16-cpu-v100-mid.json")
LIMIT = str(CASES / "infeasible-limit.json")


def test_a_comparison_has_a_row_for_each_method_and_says_why_one_failed(
    heterps, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compare, "METHODS", ("exact", "greedy", "single-type", "brute-force"))
    result = heterps("plan", str(CASES / "matchnet-four.json"), "--compare")
    assert result.code == 0
    rows = {line.split()[0]: line for line in result.out.splitlines()[3:7]}
    assert " 1.0000 " in rows["exact"]
    assert " 2.0511 " in rows["single-type"]
    assert "4294967296 assignments" in rows["brute-force"]
    assert "ratio: to the proven optimum of $0.1734" in result.out


@pytest.mark.slow
def test_all_methods_are_compared_on_a_case(heterps):
    path = str(CASES / "nce-four.json")
    result = heterps("plan", path, "--compare", "--json", "--time-budget", "1")
    (line,) = result.lines
    assert [entry["method"] for entry in line["methods"]] == list(METHODS)
    assert all(entry["ratio"] >= 1 for entry in line["methods"])
    ratios = {entry["method"]: entry["ratio"] for entry in line["methods"]}
    assert ratios["auto"] == ratios["exact"] == ratios["brute-force"] == 1
    assert line["lower_bound"] == pytest.approx(
        json.loads(Path(path).read_text())["expect"]["cost"]
    )


def test_an_infeasible_problem_has_nothing_to_compare(heterps, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare, "METHODS", ("exact", "greedy"))
    result = heterps("plan", LIMIT, "--compare", "--json")
    assert (result.code, result.lines[0]["infeasible"]) == (3, "limit")


def test_the_frontier_is_a_table_and_a_list(heterps):
    out = heterps("plan", MID, "--method", "exact", "--frontier").out
    assert "741,040  $0.2165" in out
    assert "No plan within the limits is faster than the last" in out
    (line,) = heterps("plan", MID, "--method", "exact", "--frontier", "--json").lines
    costs = [plan["cost"] for plan in line["frontier"]]
    assert costs == sorted(costs)
    assert line["cost"] in costs


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.html", b"<!DOCTYPE html>")])
def test_a_picture_is_drawn(heterps, tmp_path: Path, name: str, start: bytes):
    result = heterps("plan", WORKED, "--method", "exact", "--plot", str(tmp_path / name), "--json")
    assert "frontier" not in result.lines[0]
    assert (tmp_path / name).read_bytes().startswith(start)
