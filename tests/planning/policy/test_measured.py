"""Runs are the simulator's on a profile that the search does not know."""

from itertools import product

import numpy as np
import pytest

from heterps.errors import InfeasibleError
from heterps.planning.measured import CAUSES, MeasuredStage
from heterps.planning.plan import make_plan
from heterps.planning.policy.measured import MeasuredSearch
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.simulate import simulate

LAYERS = 5
pytestmark = pytest.mark.slow


def figures(compute_s, comm_s=0.0):
    shares = {"alpha": 0.98, "beta": 0.95, "transfer_s": 0.002, "sync_s": 0.001}
    return {"compute_s": compute_s, "comm_s": comm_s, **shares}


def problem(wrong=1.0, floor=3000.0, price=0.02):
    """Layer 3 takes ``wrong`` times as long on type b."""
    layers = []
    for at in range(LAYERS):
        a, b = figures(0.01, 0.03 * (at == 0)), figures(0.0035, 0.06 * (at == 0))
        b["compute_s"] *= wrong if at == 3 else 1.0
        about = {"kind": "fc" if at else "embedding", "input_bytes": 100, "weight_bytes": 1000}
        layers.append({"name": f"l{at}", **about, "on": {"a": a, "b": b}})
    types = [
        {"name": "a", "price_per_hour": 0.02, "limit": 4},
        {"name": "b", "price_per_hour": price, "limit": 4},
    ]
    work = {"batch_size": 512, "micro_batches": 8, "staleness": 2, "epochs": 1}
    work |= {"samples_per_epoch": 100_000, "min_throughput": floor}
    return Problem.parse(
        {
            "cluster": {"types": types},
            "profile": {"batch_size": 64, "layers": layers},
            "workload": work,
        }
    )


def run(true, assignment, units):
    """Samples per second, and what each stage took."""
    plan = make_plan(true, "run", assignment, units)
    nothing = dict.fromkeys(("backward_s", "prepare_s", "send_s", "commit_s"), 0.0)
    beside = {"push_s": 0.0, "link_s": 0.0, "waiting": dict.fromkeys(CAUSES, 0.0)}
    stages = [
        MeasuredStage(9, s.compute_s, forward_s=s.compute_s, **nothing, pull_s=s.comm_s, **beside)
        for s in plan.stages
    ]
    return simulate(true, plan, batches=12).samples_per_s, stages


def searched(said, true, rounds):
    search = MeasuredSearch(said, steps=4, samples=32)
    for _ in range(rounds):
        plan = search.propose()
        if plan is not None:
            search.measured(plan, *run(true, plan.assignment, plan.units))
    return search


def cheapest(true):
    """Over every assignment, with the units that the cost model gives it at several floors."""
    costs = []
    for assignment, haste in product(product("ab", repeat=LAYERS), (1.0, 1.1, 1.2, 1.4)):
        floor = true.workload.min_throughput
        try:
            plan = provision(true.with_min_throughput(floor * haste), assignment)
        except InfeasibleError:
            continue
        reached, _ = run(true, assignment, plan.units)
        if reached >= 0.98 * floor:
            costs.append(plan.cost * plan.throughput / reached)
    return min(costs)


@pytest.fixture(scope="module")
def misled():
    return searched(problem(), problem(wrong=8.0), rounds=6)


def test_it_ends_close_to_the_best_plan_though_the_profile_is_wrong(misled):
    first, best = misled.rounds[0], misled.best
    assert first.plan.assignment[3] == "b", "as the profile says"
    assert first.cost > 1.5 * best.cost or not first.kept
    assert best.kept
    assert best.cost <= 1.1 * cheapest(problem(wrong=8.0))


def test_the_first_plan_is_that_of_the_cost_model_and_none_is_run_twice(misled):
    plans = [(entry.plan.assignment, entry.plan.units) for entry in misled.rounds]
    assert plans[0] == (misled.first.assignment, misled.first.units)
    assert len(set(plans)) == len(plans) == 6


def test_expectations_come_closer_to_what_is_measured(misled):
    off = [abs(np.log(entry.expected / entry.cost)) for entry in misled.rounds]
    assert min(off[1:]) < 0.1 < off[0]


def test_a_right_profile_is_confirmed():
    found = searched(problem(), problem(), rounds=2)
    assert found.rounds[0].expected == pytest.approx(found.rounds[0].cost)
    assert found.best.cost <= found.rounds[0].cost


def test_where_no_plan_keeps_the_floor_the_fastest_is_the_best():
    search = MeasuredSearch(problem(floor=0.0), steps=0, samples=8)
    slow, fast = (make_plan(problem(floor=1e6), "x", "aaaaa", (units,)) for units in (1, 2))
    search._problem = problem(floor=1e6)
    for plan, speed in ((slow, 100.0), (fast, 150.0)):
        assert not search.measured(plan, speed, [None]).kept
    assert search.best.plan == fast


def test_plans_that_may_be_the_best_are_run_again_and_the_median_counts():
    search = MeasuredSearch(problem(floor=0.0), steps=0, samples=8)
    plans = [make_plan(problem(floor=0.0), "x", "aaaaa", (units,)) for units in (1, 2, 3)]
    for plan, share in zip(plans, (1.0, 0.95, 0.5), strict=True):
        search.measured(plan, share * plan.throughput * plan.cost / plans[0].cost, [None])
    assert search.contenders() == plans[:2]  # the third is far dearer
    for speed in (1.2, 1.1):
        again = search.measured_again(plans[1], speed * search.rounds[1].runs[0])
    assert again.samples_per_s == pytest.approx(1.1 * again.runs[0])
    assert search.best.plan == plans[1]


def test_all_that_comes_to_mind_may_have_been_run():
    said = problem(floor=0.0).with_limits({"a": 1, "b": 0})
    search = searched(said, said, rounds=2)
    assert len(search.rounds) == 1
    assert search.propose() is None
