import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from heterps.errors import InfeasibleError
from heterps.planning import reference
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.schedulers.brute_force import BruteForceScheduler
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.conformance import assert_valid
from heterps.testing.problems import random_problem
from heterps.testing.strategies import tiny_problems
from heterps.testing.tiny import tiny_problem


def solve(scheduler, problem):
    """(cost, reason, max_throughput); a plan is checked."""
    try:
        plan = scheduler.plan(problem)
    except InfeasibleError as error:
        return None, error.reason, error.max_throughput
    assert_valid(problem, plan)
    assert plan.gap == pytest.approx(0, abs=1e-9)
    return plan.cost, None, None


def assert_optimal(problem):
    expected = reference.cheapest_plan(problem)
    cost, reason, reached = solve(ExactScheduler(), problem)
    assert reason == expected.reason
    if reason is None:
        assert cost == pytest.approx(expected.cost, rel=1e-7)
    if reason == "throughput":
        assert reached == pytest.approx(problem.workload.batch_size / expected.period_s, rel=1e-6)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(tiny_problems())
def test_exact_agrees_with_the_reference(problem):
    assert_optimal(problem)


@settings(deadline=None, max_examples=50)
@given(tiny_problems(layers=1, types=2))
def test_exact_agrees_with_the_reference_on_one_layer(problem):
    assert_optimal(problem)


@settings(deadline=None, max_examples=50)
@given(tiny_problems(layers=5, types=1))
def test_exact_agrees_with_the_reference_on_one_type(problem):
    assert_optimal(problem)


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_exact_agrees_with_brute_force_on_lifelike_problems(seed, limited):
    problem = random_problem(seed, layers=(4, 7), types=(2, 4), limited=limited)
    expected = solve(BruteForceScheduler(), problem)
    assert solve(ExactScheduler(), problem) == (pytest.approx(expected[0], rel=1e-8), None, None)


@pytest.mark.parametrize("limited", [False, True])
def test_every_step_of_an_interrupted_search_has_a_true_bound(limited):
    for seed in range(20):
        problem = random_problem(seed, layers=(4, 6), types=(2, 4), limited=limited)
        optimum = BruteForceScheduler().plan(problem).cost
        search, dollars = problem.kernel.search(), problem.kernel.dollars
        done = False
        while not done:
            done = search.run(1)
            assert search.lower_bound * dollars <= optimum * (1 + 1e-9)
            assert not search.found or search.cost * dollars >= optimum * (1 - 1e-9)


@pytest.mark.parametrize("interruption", ["stop", "max_work"])
def test_an_interrupted_search_gives_a_valid_plan_and_a_gap(interruption):
    problem = random_problem(1, layers=(48, 48), types=(8, 8), limited=True)
    if interruption == "stop":
        plan = ExactScheduler().plan(problem, stop=lambda: True)
    else:
        plan = ExactScheduler(max_work=1).plan(problem)
    assert_valid(problem, plan)
    assert 0 < plan.gap < 1
    assert plan.lower_bound == pytest.approx(plan.cost * (1 - plan.gap))


def test_an_optimal_plan_to_start_with_is_kept():
    problem = random_problem(2, layers=(6, 6), types=(3, 3))
    best = ExactScheduler().plan(problem)
    row = np.array([problem.type_indices(best.assignment)], np.int32)
    again = ExactScheduler().prove(problem, row)
    assert (again.assignment, again.units, again.gap) == (best.assignment, best.units, best.gap)


def test_a_chain_that_leaves_charged_units_over_is_bounded_by_its_cost():
    """With several scarce types the search once took the first whole chain for the cheapest."""
    document = json.loads((Path(__file__).parent / "problems/two-scarce-types.json").read_text())
    problem = Problem.parse(document)
    assert provision(problem, document["expect"]["assignment"]).cost == pytest.approx(
        document["expect"]["cost"]
    )
    plan = ExactScheduler().plan(problem)
    assert plan.cost == pytest.approx(document["expect"]["cost"], rel=1e-7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(20))
def test_exact_agrees_with_the_reference_on_thousands(block):
    for seed in range(1000 * block, 1000 * block + 1000):
        layers, types = ((4, 3), (6, 2), (5, 3), (3, 4))[seed % 4]
        assert_optimal(tiny_problem(seed, layers=layers, types=types))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(10))
def test_exact_agrees_with_brute_force_on_hundreds_of_lifelike_problems(block):
    for seed in range(100 * block, 100 * block + 100):
        problem = random_problem(seed, layers=(4, 7), types=(2, 4))
        expected = BruteForceScheduler().plan(problem).cost
        assert ExactScheduler().plan(problem).cost == pytest.approx(expected, rel=1e-8)
