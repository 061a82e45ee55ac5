import itertools
import json
from pathlib import Path

import pytest

from heterps.errors import InfeasibleError
from heterps.planning.feasibility import max_throughput
from heterps.planning.frontier import frontier
from heterps.planning.problem import Problem
from heterps.planning.schedulers.exact import ExactScheduler

CASES = Path(__file__).parents[1] / "cases"


def read(name: str) -> Problem:
    return Problem.parse(json.loads((CASES / f"{name}.json").read_text()))


NAMES = ("2emb-three", "ctrdnn16-cpu-v100-mid", "ctrdnn16-limits-bind", "matchnet-four", "nce-four")


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_is_the_cheapest_at_its_speed(name: str):
    problem = read(name)
    for plan in frontier(problem, 6).plans:
        assert plan.throughput is not None
        anew = ExactScheduler().plan(problem.with_min_throughput(plan.throughput * (1 - 1e-8)))
        assert plan.cost == pytest.approx(anew.cost, rel=1e-6)
        assert plan.gap == 0


@pytest.mark.parametrize("name", NAMES)
def test_it_rises_from_the_cheapest_plan_to_the_fastest(name: str):
    problem = read(name)
    found = frontier(problem)
    for slow, fast in itertools.pairwise(found.plans):
        assert (slow.throughput or 0) < (fast.throughput or 0)
        assert slow.cost < fast.cost
    cheapest = ExactScheduler().plan(problem.with_min_throughput(0))
    assert found.plans[0].cost == pytest.approx(cheapest.cost)
    assert found.plans[-1].throughput == pytest.approx(max_throughput(problem), rel=1e-3)
    assert found.complete


def test_the_plan_at_the_problems_own_floor_is_on_it():
    problem = read("ctrdnn16-cpu-v100-mid")
    best = ExactScheduler().plan(problem)
    assert best.assignment in [plan.assignment for plan in frontier(problem, 2).plans]
    assert best.cost == pytest.approx(
        min(p.cost for p in frontier(problem, 2).plans if p.throughput >= best.throughput)
    )


def test_a_floor_out_of_reach_does_not_matter():
    assert frontier(read("infeasible-throughput"), 4).plans


def test_limits_that_admit_no_plan_are_reported():
    with pytest.raises(InfeasibleError, match="limit"):
        frontier(read("infeasible-limit"))


def test_stopped_it_holds_what_is_known_and_claims_no_end():
    found = frontier(read("deep32-eight"), stop=lambda: True)
    assert found.plans
    assert not found.complete
