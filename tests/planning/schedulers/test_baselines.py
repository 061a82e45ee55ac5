"""What the simple schedulers promise beyond the conformance suite."""

import logging
import sys

import numpy as np
import pytest

from heterps.errors import InputError, MissingExtraError, NoPlanFoundError
from heterps.planning.problem import Problem
from heterps.planning.schedulers import make_scheduler, scheduler_class
from heterps.planning.schedulers.brute_force import BruteForceScheduler
from heterps.planning.schedulers.heuristic import HeuristicScheduler
from heterps.planning.schedulers.incumbent import choices, ranks
from heterps.planning.schedulers.random import random_assignments
from heterps.testing.problems import random_problem
from heterps.testing.tiny import edge_problems, plain_problem

SEARCHING = ("random", "genetic", "bayesian")


def with_types(**changes):
    document = plain_problem().as_document()
    for entry in document["cluster"]["types"]:
        entry |= changes.get(entry["name"], {})
    return Problem.parse(document)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["greedy", *SEARCHING])
def test_a_search_finds_the_optimum_of_a_small_problem(method):
    problem = random_problem(4, layers=(6, 6), types=(3, 3))
    optimum = BruteForceScheduler().plan(problem).cost
    assert make_scheduler(method).plan(problem).cost == pytest.approx(optimum)


@pytest.mark.parametrize("method", SEARCHING)
def test_a_search_keeps_its_budget(method):
    problem = random_problem(4, layers=(8, 8), types=(3, 3))
    plan = make_scheduler(method, evaluations=30).plan(problem)
    assert 20 < plan.evaluations <= 30


@pytest.mark.parametrize("method", SEARCHING)
def test_the_seed_makes_a_difference(method):
    problem = random_problem(6, layers=(24, 24), types=(4, 4), limited=False)
    costs = {
        make_scheduler(method, seed=seed, evaluations=40).plan(problem).cost for seed in range(4)
    }
    assert len(costs) > 1


@pytest.mark.parametrize("method", [*SEARCHING, "single-type", "heuristic"])
def test_a_method_that_finds_nothing_says_who_can_decide(method):
    problem = _needle()
    options = {"evaluations": 1} if method in SEARCHING else {}
    with pytest.raises(NoPlanFoundError, match="'auto' or 'exact' can decide"):
        make_scheduler(method, **options).plan(problem)
    assert make_scheduler("exact").plan(problem).gap == 0


def _needle():
    """One assignment in 4096 meets the floor: that with every layer on its fast type."""
    figures = {"comm_s": 0, "alpha": 1, "beta": 1, "transfer_s": 0}
    fast, slow = figures | {"compute_s": 0.001}, figures | {"compute_s": 10.0}
    layers = [
        {
            "name": str(index),
            "kind": "fc",
            "input_bytes": 0,
            "weight_bytes": 0,
            "on": {"cpu": slow, "gpu": fast} if index in (3, 4, 9) else {"cpu": fast, "gpu": slow},
        }
        for index in range(12)
    ]
    types = [{"name": name, "price_per_hour": 1, "limit": 4} for name in ("cpu", "gpu")]
    return Problem.parse(
        {
            "cluster": {"types": types},
            "profile": {"model": "needle", "batch_size": 1, "layers": layers},
            "workload": {
                "batch_size": 1,
                "samples_per_epoch": 1,
                "epochs": 1,
                "min_throughput": 10,
            },
        }
    )


def test_brute_force_proves_its_plan():
    plan = BruteForceScheduler().plan(plain_problem())
    assert (plan.lower_bound, plan.gap, plan.evaluations) == (plan.cost, 0, 8)


def test_brute_force_stopped_early_proves_nothing():
    problem = random_problem(5, layers=(14, 14), types=(2, 2)).with_min_throughput(0)
    plan = BruteForceScheduler().plan(problem, stop=lambda: True)
    assert plan.lower_bound is None
    assert plan.evaluations < 2**14


def test_brute_force_refuses_too_many_assignments_and_names_the_number():
    problem = random_problem(0, layers=(40, 40), types=(2, 2))
    with pytest.raises(InputError, match=rf"{2**40} assignments"):
        BruteForceScheduler().plan(problem)
    with pytest.raises(InputError, match="8 assignments, more than the 7"):
        BruteForceScheduler(max_assignments=7).plan(plain_problem())


def test_brute_force_counts_only_types_that_a_layer_can_have():
    problem = edge_problems()["a layer that one type cannot run"]
    assert BruteForceScheduler(max_assignments=4).plan(problem).evaluations == 4


def test_single_type_says_which_type_it_is():
    plan = make_scheduler("single-type").plan(plain_problem())
    assert (plan.method, set(plan.assignment)) == ("single-type:cpu", {"cpu"})
    plan = make_scheduler("single-type").plan(with_types(cpu={"limit": 0}))
    assert (plan.method, set(plan.assignment)) == ("single-type:gpu", {"gpu"})


def test_heuristic_puts_embeddings_on_the_slow_type_and_the_rest_on_the_fast_one():
    assert HeuristicScheduler().plan(plain_problem()).assignment == ("cpu", "gpu", "gpu")


def test_heuristic_believes_the_devices_that_the_cluster_states():
    problem = with_types(cpu={"device": "cuda"}, gpu={"device": "cpu"})
    assert HeuristicScheduler().plan(problem).assignment == ("gpu", "gpu", "gpu")


def test_heuristic_takes_the_next_type_where_a_layer_cannot_run_or_fit():
    cannot_run = edge_problems()["a layer that one type cannot run"]
    assert HeuristicScheduler().plan(cannot_run).assignment == ("cpu", "cpu", "gpu")
    cannot_fit = edge_problems()["no memory for dense layers"]
    assert HeuristicScheduler().plan(cannot_fit).assignment == ("cpu", "cpu", "cpu")


def test_heuristic_falls_back_to_the_second_fastest_type():
    """Both dense layers fit the gpu one by one, not together."""
    problem = with_types(gpu={"memory_gib": 0.75})
    assert HeuristicScheduler().plan(problem).assignment == ("cpu", "cpu", "cpu")


def test_choices_leave_out_types_without_figures_units_or_memory():
    problem = edge_problems()["the same with a cost of sending"]
    assert [layer.tolist() for layer in choices(problem)] == [[0, 1], [0], [0, 1]]
    problem = edge_problems()["no memory for dense layers"]
    assert [layer.tolist() for layer in choices(problem)] == [[0, 1], [0], [0]]
    problem = edge_problems()["a type without units"]
    assert [layer.tolist() for layer in choices(problem)] == [[0], [0], [0]]


def test_random_assignments_take_only_the_options_and_every_length_of_stage():
    options = [np.array(types, np.int32) for types in ([0, 1, 2], [1], [0, 1, 2], [0, 1, 2])]
    rows = random_assignments(options, 2000, np.random.default_rng(0))
    assert all(np.isin(rows[:, layer], types).all() for layer, types in enumerate(options))
    assert len(np.unique(rows, axis=0)) == 27
    stages = 1 + (rows[:, 1:] != rows[:, :-1]).sum(axis=1)
    assert set(stages) == {1, 2, 3, 4}


def test_ranks_put_feasible_plans_first_and_grade_the_others():
    problem = plain_problem().with_min_throughput(3000)
    rows = np.array([[0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]], np.int32)
    provisions = problem.kernel.provision(rows)
    order = ranks(provisions)
    feasible = provisions.feasible
    assert 0 < feasible.sum() < len(rows)
    assert order[feasible].max() < order[~feasible].min()
    assert np.argsort(order[~feasible]).tolist() == (
        np.argsort(provisions.violation[~feasible]).tolist()
    )


@pytest.mark.parametrize(
    ("method", "package"), [("genetic", "pymoo"), ("bayesian", "optuna")], ids=["pymoo", "optuna"]
)
def test_a_missing_optional_package_is_named_with_its_extra(monkeypatch, method, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"heterps.planning.schedulers.{method}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"the {method} scheduler.*heterps\[search\]"):
        scheduler_class(method)


def test_bayesian_is_silent_and_leaves_the_log_level_as_it_was(capfd, caplog):
    import optuna

    level = optuna.logging.get_verbosity()
    with caplog.at_level(logging.DEBUG):
        make_scheduler("bayesian", seed=2**40, evaluations=5).plan(plain_problem())
    assert optuna.logging.get_verbosity() == level
    assert capfd.readouterr() == ("", "")
