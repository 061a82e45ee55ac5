import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from heterps.errors import InfeasibleError
from heterps.planning.explain import binding_stage, explain
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.ranking import next_best
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.tiny import tiny_problem

ROOT = Path(__file__).parents[2]
FREE = {"compute_s": 0, "comm_s": 0, "alpha": 1, "beta": 1, "transfer_s": 0}


def read(path: str) -> Problem:
    return Problem.parse(json.loads((ROOT / path).read_text()))


@pytest.fixture
def worked() -> Problem:
    """The example that docs/planning.md works by hand."""
    return read("examples/planning/problem.json")


def tiny(seed: int) -> Problem:
    """The first feasible problem from ``seed`` on."""
    for number in itertools.count(100 * seed):
        problem = tiny_problem(number)
        try:
            ExactScheduler().plan(problem)
        except InfeasibleError:
            continue
        return problem
    raise AssertionError


def all_costs(problem: Problem) -> list[float]:
    """Of every feasible assignment, cheapest first."""
    every = itertools.product(range(len(problem.types)), repeat=problem.layers)
    costs = problem.kernel.provision(np.array(list(every), np.int32)).cost
    return sorted(costs[np.isfinite(costs)].tolist())


def test_the_slowest_stage_binds_by_its_longer_side(worked: Problem):
    binding = binding_stage(ExactScheduler().plan(worked))
    assert binding is not None
    assert (binding.index, binding.stage.type, binding.by) == (1, "gpu", "compute")


def test_communication_binds_where_it_takes_longer():
    problem = read("tests/cases/ctrdnn16-cpu-v100-mid.json")
    binding = binding_stage(ExactScheduler().plan(problem))
    assert binding is not None
    assert binding.by == "communication"


def test_nothing_binds_where_nothing_takes_time(worked: Problem):
    document = worked.as_document()
    for layer in document["profile"]["layers"]:
        layer["on"] = {"cpu": FREE}
    problem = Problem.parse(document)
    explanation = explain(problem, ExactScheduler().plan(problem))
    assert explanation.binding is None
    assert explanation.alternatives == ()


@pytest.mark.parametrize("seed", range(60))
def test_the_next_best_plans_are_those_that_enumeration_finds(seed: int):
    problem = tiny(seed)
    best = ExactScheduler().plan(problem)
    others = next_best(problem, best, 4)
    costs = all_costs(problem)
    assert [other.plan.cost for other in others] == pytest.approx(costs[1:5], rel=1e-6)
    assert all(other.proven for other in others)
    assert len({best.assignment, *(other.plan.assignment for other in others)}) == len(others) + 1


def test_beside_a_poor_plan_the_optimum_comes_first():
    problem = read("tests/cases/ctrdnn16-cpu-v100-mid.json")
    poor = provision(problem, ["v100"] * 16)
    optimum = ExactScheduler().plan(problem)
    (first,) = next_best(problem, poor, 1)
    assert first.plan.assignment == optimum.assignment
    assert first.extra == pytest.approx(optimum.cost - poor.cost)


def test_without_work_the_neighbours_are_found_but_not_proven():
    problem = read("tests/cases/deep32-eight.json")
    best = ExactScheduler().plan(problem)
    others = next_best(problem, best, 3, max_work=0)
    assert len(others) == 3
    assert not any(other.proven for other in others)
    assert [other.extra for other in others] == sorted(other.extra for other in others)


@pytest.mark.parametrize("seed", range(20))
def test_one_more_unit_saves_what_planning_anew_saves(seed: int):
    problem = tiny(seed)
    best = ExactScheduler().plan(problem)
    changes = explain(problem, best).more_units
    assert [change.type for change in changes] == list(problem.types)
    for change, entry in zip(changes, problem.cluster.types, strict=True):
        anew = ExactScheduler().plan(problem.with_limits({entry.name: entry.limit + 1}))
        assert change.value == entry.limit + 1
        assert change.saving == pytest.approx(best.cost - anew.cost, abs=1e-6 * best.cost)
        assert change.proven


@pytest.mark.parametrize("seed", range(20))
def test_a_lower_floor_saves_what_planning_anew_saves(seed: int):
    problem = tiny(seed)
    best = ExactScheduler().plan(problem)
    change = explain(problem, best).lower_floor
    floor = problem.workload.min_throughput
    if not floor:
        assert change is None
        return
    anew = ExactScheduler().plan(problem.with_min_throughput(0.9 * floor))
    assert change is not None
    assert change.saving == pytest.approx(best.cost - anew.cost, abs=1e-6 * best.cost)


def test_changes_of_a_poor_plan_are_measured_from_the_optimum():
    problem = read("tests/cases/ctrdnn16-limits-bind.json")
    best = ExactScheduler().plan(problem)
    poor = next_best(problem, best, 1)[0].plan
    explanation = explain(problem, poor.named("greedy", lower_bound=None))
    assert explanation.reference.cost == pytest.approx(best.cost)
    savings = {change.type: change.saving for change in explanation.more_units}
    assert savings["t4"] == pytest.approx(0.0547 * best.cost, rel=1e-2)


def test_a_stopped_explanation_claims_nothing_that_is_not_proven():
    problem = read("tests/cases/deep32-eight.json")
    explanation = explain(problem, ExactScheduler().plan(problem), stop=lambda: True)
    assert not any(change.proven for change in explanation.more_units)
    assert not any(other.proven for other in explanation.alternatives)


def test_an_explanation_is_plain_json(worked: Problem):
    document = explain(worked, ExactScheduler().plan(worked)).as_document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["binding"] == {"stage": 1, "by": "compute"}
