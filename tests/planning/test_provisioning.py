from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.errors import InfeasibleError, InputError, UnknownNameError
from heterps.planning import reference
from heterps.planning.provisioning import provision, provision_balanced, provision_static
from heterps.testing.strategies import tiny_problems
from heterps.testing.tiny import edge_problems, infeasible_problems, plain_problem


def answer(way, problem, assignment):
    """(cost, reason, max_throughput) of a provisioner; the plan is checked."""
    try:
        plan = way(problem, assignment)
    except InfeasibleError as error:
        return None, error.reason, error.max_throughput
    assert reference.faults(problem, assignment, plan.units) == []
    return plan.cost, None, None


def assert_same(problem, assignment):
    expected = reference.cheapest_units(problem, assignment)
    cost, reason, reached = answer(provision, problem, assignment)
    assert reason == expected.reason
    if reason is None:
        assert cost == pytest.approx(expected.cost, rel=1e-8)
    if reason == "throughput":
        assert reached == pytest.approx(problem.workload.batch_size / expected.period_s, rel=1e-6)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(tiny_problems(layers=3), st.data())
def test_provision_agrees_with_trying_every_level(problem, data):
    types = st.sampled_from(problem.types)
    assignment = data.draw(st.lists(types, min_size=problem.layers, max_size=problem.layers))
    assert_same(problem, assignment)


@pytest.mark.parametrize("name", edge_problems())
def test_provision_agrees_with_trying_every_level_at_the_edges(name):
    problem = edge_problems()[name]
    for assignment in product(problem.types, repeat=problem.layers):
        assert_same(problem, assignment)


@settings(deadline=None, max_examples=100)
@given(tiny_problems(layers=3, types=2))
def test_the_reference_agrees_with_trying_all_units(problem):
    """The oracle itself: its levels miss no combination of units."""
    limits = {entry.name: entry.limit for entry in problem.cluster.types}
    for assignment in product(problem.types, repeat=problem.layers):
        found = reference.cheapest_units(problem, assignment)
        if found.reason in ("layer", "memory", "limit"):
            continue
        stages = [name for i, name in enumerate(assignment) if i == 0 or assignment[i - 1] != name]
        costs = [
            reference.plan_cost(problem, assignment, units)
            for units in product(*(range(1, limits[name] + 1) for name in stages))
            if reference.faults(problem, assignment, units) == []
        ]
        assert (found.reason is None) == bool(costs)
        if costs:
            assert found.cost == pytest.approx(min(costs), rel=2e-9)


def test_a_floor_exactly_at_a_serial_stage_is_met():
    """The shortest period equals the one allowed, but for the last digit."""
    document = plain_problem().as_document()
    for layer in document["profile"]["layers"]:
        layer["on"]["cpu"] |= {"alpha": 0, "beta": 0}
    slow = provision_static(type(plain_problem()).parse(document), ["cpu"] * 3, {})
    for digits in (0, 1e-16, 2e-16, 5e-10):
        document["workload"]["min_throughput"] = slow.throughput * (1 + digits)
        plan = provision(type(plain_problem()).parse(document), ["cpu"] * 3)
        assert plan.units == (1,)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(tiny_problems(layers=3), st.data())
def test_balanced_units_are_feasible_where_any_are_and_never_cheaper(problem, data):
    types = st.sampled_from(problem.types)
    assignment = data.draw(st.lists(types, min_size=problem.layers, max_size=problem.layers))
    expected = reference.cheapest_units(problem, assignment)
    cost, reason, _ = answer(provision_balanced, problem, assignment)
    assert reason == expected.reason
    assert cost is None or cost >= expected.cost * (1 - 1e-9)


def test_balanced_units_are_those_of_the_continuous_minimum_rounded_up():
    """Both stages divide fully; with overhead the cost O·W + const falls with W: to the limits."""
    problem = edge_problems()["all parallel"]
    document = problem.as_document()
    document["workload"]["overhead_per_hour"] = 1
    fast = type(problem).parse(document)
    plan = provision_balanced(fast, ["cpu", "gpu", "gpu"])
    assert plan.units_by_type()["gpu"] == 3  # the type that runs out first
    assert plan.cost == pytest.approx(provision(fast, ["cpu", "gpu", "gpu"]).cost, rel=0.05)


@pytest.mark.parametrize("reason", infeasible_problems())
def test_every_way_gives_the_reason_of_an_infeasible_assignment(reason):
    problem = infeasible_problems()[reason]
    for way in (provision, provision_balanced, lambda p, a: provision_static(p, a, {})):
        with pytest.raises(InfeasibleError) as caught:
            way(problem, ["cpu"] * 3)
        assert caught.value.reason == reason
        assert (caught.value.max_throughput is not None) == (reason == "throughput")


def test_static_takes_the_fewest_bundles_that_meet_the_floor():
    problem = plain_problem().with_min_throughput(8000)
    plan = provision_static(problem, ["cpu", "gpu", "gpu"], {"cpu": 4})
    assert plan.units == (8, 2)
    fewer = reference.faults(problem, plan.assignment, (4, 1))
    assert fewer == ["throughput"]


def test_static_gives_every_stage_its_share():
    plan = provision_static(plain_problem(), ["cpu", "gpu", "cpu"], {"cpu": 5})
    assert plan.units == (5, 1, 5)


def test_static_says_what_the_ratio_reaches_within_the_limits():
    problem = plain_problem().with_min_throughput(1e6)
    with pytest.raises(InfeasibleError) as caught:
        provision_static(problem, ["cpu", "gpu", "gpu"], {"cpu": 4})
    best = 200 / reference.plan_period(problem, ["cpu", "gpu", "gpu"], (12, 3))
    assert caught.value.max_throughput == pytest.approx(best)


def test_static_needs_room_for_one_bundle():
    with pytest.raises(InfeasibleError, match="cpu 13, gpu 1") as caught:
        provision_static(plain_problem(), ["cpu", "gpu", "gpu"], {"cpu": 13})
    assert caught.value.reason == "limit"


def test_static_refuses_a_bad_ratio_by_its_path():
    with pytest.raises(UnknownNameError, match=r"ratio\.cpus"):
        provision_static(plain_problem(), ["cpu"] * 3, {"cpus": 4})
    with pytest.raises(InputError, match=r"ratio\.cpu: "):
        provision_static(plain_problem(), ["cpu"] * 3, {"cpu": 0})


@pytest.mark.parametrize("way", [provision, provision_balanced])
def test_an_assignment_of_wrong_length_or_name_is_refused_by_its_path(way):
    with pytest.raises(InputError, match="assignment: names 2 types for 3 layers"):
        way(plain_problem(), ["cpu", "cpu"])
    with pytest.raises(UnknownNameError, match=r"assignment\[1\]: .*did you mean 'gpu'"):
        way(plain_problem(), ["cpu", "gpus", "cpu"])
