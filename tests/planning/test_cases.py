"""The solved problems of tests/cases."""

import json
from pathlib import Path

import pytest

from heterps.errors import InfeasibleError
from heterps.planning.feasibility import max_throughput
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.conformance import assert_valid

CASES = {
    path.stem: json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[1] / "cases").glob("*.json"))
}
FIXED = [
    pytest.param(case, fixed, id=f"{name}-{fixed['name']}")
    for name, case in CASES.items()
    for fixed in case.get("provision", [])
]


def assert_answers(solve, problem, expect):
    """``solve`` gives a valid plan at the expected cost, or the expected reason."""
    if "infeasible" not in expect:
        plan = solve()
        assert_valid(problem, plan)
        assert plan.cost == pytest.approx(expect["cost"], rel=1e-6)
        return
    with pytest.raises(InfeasibleError) as caught:
        solve()
    assert caught.value.reason == expect["infeasible"]
    if "max_throughput" in expect:
        assert caught.value.max_throughput == pytest.approx(expect["max_throughput"], rel=1e-6)


def test_all_twenty_cases_are_here():
    assert len(CASES) == 20


@pytest.mark.parametrize("name", CASES)
def test_exact_solves_the_case(name):
    problem, expect = Problem.parse(CASES[name]), CASES[name]["expect"]
    assert_answers(lambda: ExactScheduler().plan(problem), problem, expect)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if "cost" in case["expect"]])
def test_exact_proves_the_case(name):
    plan = ExactScheduler().plan(Problem.parse(CASES[name]))
    assert plan.gap == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if "max_throughput" in c["expect"]])
def test_the_largest_throughput_is_that_of_the_case(name):
    problem, expect = Problem.parse(CASES[name]), CASES[name]["expect"]
    assert max_throughput(problem) == pytest.approx(expect["max_throughput"], rel=1e-6)


@pytest.mark.parametrize(("case", "fixed"), FIXED)
def test_provision_solves_the_fixed_assignment(case, fixed):
    problem = Problem.parse(case)
    assert_answers(lambda: provision(problem, fixed["assignment"]), problem, fixed["expect"])


def test_an_infeasible_layer_is_named():
    case = CASES["infeasible-layer"]
    with pytest.raises(InfeasibleError, match=rf"profile\.layers\[{case['expect']['layer']}\]"):
        ExactScheduler().plan(Problem.parse(case))
