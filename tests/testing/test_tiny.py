from collections import Counter

import numpy as np

from heterps.planning import reference
from heterps.testing.tiny import edge_problems, infeasible_problems, plain_problem, tiny_problem


def test_a_seed_gives_the_same_problem_again():
    assert tiny_problem(3) == tiny_problem(3)
    assert tiny_problem(3) != tiny_problem(4)


def test_tiny_problems_are_feasible_or_not_for_every_reason():
    found = Counter(reference.cheapest_plan(tiny_problem(seed)).reason for seed in range(200))
    assert set(found) == {None, "layer", "memory", "limit", "throughput"}
    assert found[None] > 80


def test_edges_are_feasible_and_infeasible_problems_have_the_reason_they_are_named_for():
    for name, problem in edge_problems().items():
        assert reference.cheapest_plan(problem).reason is None, name
    for reason, problem in infeasible_problems().items():
        assert reference.cheapest_plan(problem).reason == reason


def test_every_assignment_of_the_plain_problem_is_feasible():
    rows = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], np.int32)
    assert plain_problem().kernel.provision(rows).feasible.all()
