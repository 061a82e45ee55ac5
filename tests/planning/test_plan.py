import json
import re

import pytest

from heterps.errors import InputError
from heterps.planning.plan import check_fits, make_plan, read_plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.tiny import edge_problems, plain_problem

KEYS = {
    "method",
    "assignment",
    "stages",
    "throughput",
    "seconds",
    "cost",
    "lower_bound",
    "gap",
    "proven_for",
    "evaluations",
    "planning_s",
}
KEYS_OF_A_STAGE = ("first", "last", "type", "units")
STAGE_KEYS = {"first", "last", "type", "units", "compute_s", "comm_s", "throughput"}


def document():
    return make_plan(plain_problem(), "by-hand", ("cpu", "gpu", "gpu"), (6, 3)).as_document()


@pytest.mark.parametrize("name", edge_problems())
def test_a_plan_is_read_as_it_was_written(name):
    problem = edge_problems()[name]
    plan = ExactScheduler().plan(problem)
    text = json.dumps(plan.as_document(), allow_nan=False)
    assert read_plan(problem, json.loads(text)) == plan


def test_the_document_has_every_key_and_counts_layers_from_0_inclusively():
    assert document().keys() >= KEYS
    assert all(stage.keys() >= STAGE_KEYS for stage in document()["stages"])
    assert [(s["first"], s["last"]) for s in document()["stages"]] == [(0, 0), (1, 2)]


def test_gap_is_the_share_that_is_not_proven():
    plan = make_plan(plain_problem(), "by-hand", ("cpu",) * 3, (1,), lower_bound=0.59)
    assert plan.cost == pytest.approx(2.36)
    assert plan.gap == pytest.approx(0.75)


def test_gap_of_a_plan_that_costs_nothing_is_0():
    plan = ExactScheduler().plan(edge_problems()["no samples"])
    assert (plan.cost, plan.lower_bound, plan.gap) == (0, 0, 0)


def test_gap_is_null_where_nothing_is_proven():
    assert document()["lower_bound"] is None
    assert document()["gap"] is None


def test_units_are_added_up_by_type():
    plan = make_plan(plain_problem(), "by-hand", ("cpu", "gpu", "cpu"), (4, 2, 5))
    assert plan.units_by_type() == {"cpu": 9, "gpu": 2}


def test_figures_of_a_plan_that_is_read_are_computed_anew():
    edited = document() | {"cost": 1e9, "throughput": -1}
    assert read_plan(plain_problem(), edited).cost == pytest.approx(document()["cost"])


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"assignment": ["cpu", "gpu"]}, "plan.assignment"),
        ({"assignment": ["cpu", "gpu", "tpu"]}, "plan.assignment[2]"),
        ({"assignment": "cpu"}, "plan.assignment"),
        ({"stages": []}, "plan.stages"),
        ({"stages": [{"first": 0, "last": 2, "type": "cpu", "units": 1}]}, "plan.stages"),
        ({"stages": [{"first": 0, "last": 2, "type": "cpu"}]}, "plan.stages[0].units"),
        ({"stages": [document()["stages"][0] | {"units": 0}]}, "plan.stages[0].units"),
        ({"stages": [document()["stages"][0] | {"units": 1.5}]}, "plan.stages[0].units"),
        ({"lower_bound": -1}, "plan.lower_bound"),
    ],
)
def test_a_plan_that_does_not_fit_the_problem_is_refused(change, path):
    with pytest.raises(InputError) as caught:
        read_plan(plain_problem(), document() | change)
    assert caught.value.path == path


def test_stages_alone_are_a_plan():
    stages = [{key: stage[key] for key in KEYS_OF_A_STAGE} for stage in document()["stages"]]
    read = read_plan(plain_problem(), {"stages": stages})
    assert read.assignment == ("cpu", "gpu", "gpu")
    assert read.cost == pytest.approx(document()["cost"])


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (("cpu", "cpu"), "plan.stages[1].type: is 'cpu' as before it"),
        (("cpu", "gpv"), "plan.stages[1].type: unknown resource type 'gpv'"),
    ],
)
def test_stages_alone_that_are_no_plan_are_refused(types, said):
    edges = [(0, 0), (1, 2)]
    stages = [
        {"first": first, "last": last, "type": name, "units": 1}
        for (first, last), name in zip(edges, types, strict=True)
    ]
    with pytest.raises(InputError, match=re.escape(said)):
        read_plan(plain_problem(), {"stages": stages})


def test_a_plan_for_a_layer_without_figures_is_refused():
    problem = edge_problems()["a layer that one type cannot run"]
    with pytest.raises(InputError, match=r"plan\.assignment\[1\]"):
        read_plan(problem, document())


def test_what_was_proven_for_another_problem_is_not_known_of_this():
    problem = plain_problem()
    document = ExactScheduler().plan(problem).as_document()
    faster = problem.with_min_throughput(problem.workload.min_throughput / 2)
    assert read_plan(problem, document).gap == 0
    assert read_plan(faster, document).lower_bound is None


def test_a_plan_of_more_than_there_is_does_not_fit():
    plan = make_plan(plain_problem(), "by-hand", ("cpu", "gpu", "cpu"), (4, 2, 5))
    check_fits(plain_problem().with_limits({"cpu": 9, "gpu": 2}), plan)
    with pytest.raises(InputError, match=r"plan\.stages\[2\]\.units: make 9 of 'cpu', more than"):
        check_fits(plain_problem().with_limits({"cpu": 8, "gpu": 2}), plan)


def test_a_stage_that_needs_more_memory_than_a_unit_has_does_not_fit():
    document = plain_problem().as_document()
    for layer in document["profile"]["layers"]:
        layer["weight_bytes"] = 2**30
    for entry in document["cluster"]["types"]:
        entry["memory_gib"] = 2**-10
    plan = make_plan(plain_problem(), "by-hand", ("cpu", "gpu", "cpu"), (4, 2, 5))
    with pytest.raises(InputError, match=r"plan\.stages\[1\]: layers 1 to 1 do not fit into"):
        check_fits(Problem.parse(document), plan)
