import json
from pathlib import Path

import numpy as np
import pytest

from heterps.planning.plan import Plan
from heterps.planning.policy.features import features_of
from heterps.planning.policy.network import Policy
from heterps.planning.policy.pool import Pool
from heterps.planning.policy.proposals import first_samples
from heterps.planning.problem import Problem
from heterps.planning.schedulers import make_scheduler
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.problems import random_problem

CASES = sorted(Path(__file__).parents[2].joinpath("cases").glob("*.json"))
FEASIBLE = [path for path in CASES if "cost" in json.loads(path.read_text())["expect"]]


@pytest.mark.slow
@pytest.mark.parametrize("path", FEASIBLE, ids=lambda path: path.stem)
def test_rl_lstm_ends_within_one_percent_of_every_case(path):
    document = json.loads(path.read_text())
    plan = make_scheduler("rl-lstm").plan(Problem.parse(document))
    assert plan.cost <= 1.01 * document["expect"]["cost"]


@pytest.mark.parametrize("method", ["rl-lstm", "rl-rnn", "rl-scratch"])
def test_same_seed_same_plan(method):
    problem = random_problem(4, layers=(10, 10))
    first, second = (make_scheduler(method, seed=5, steps=4).plan(problem) for _ in range(2))
    assert first == second


def test_proposing_needs_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; from heterps.planning.schedulers import make_scheduler\n"
        "from heterps.testing.problems import random_problem\n"
        "make_scheduler('auto').plan(random_problem(0)); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_stop_returns_the_best_of_the_first_samples():
    problem = random_problem(2, layers=(10, 10), limited=False)
    plan = make_scheduler("rl-lstm").plan(problem, stop=lambda: True)
    assert isinstance(plan, Plan)
    assert plan.evaluations == 128


def test_pool_counts_and_orders_what_it_has_seen():
    problem = random_problem(0, layers=(10, 10), types=(3, 3))
    pool = Pool(problem.kernel, size=5)
    pool.add(first_samples(Policy.shipped("lstm"), features_of(problem.kernel), 0))
    before = pool.cost
    assert pool.look_around(1) == 1
    assert pool.cost <= before
    elite = pool.elite(10)
    assert len(elite) == 5 == len(np.unique(elite, axis=0))
    costs = problem.kernel.provision(elite).cost
    assert (np.diff(costs) >= 0).all()
    best = problem.kernel.provision(np.array([pool.best])).cost[0]
    assert best == pytest.approx(pool.cost)


def test_auto_proves_what_exact_proves_and_says_so():
    for seed in range(6):
        problem = random_problem(seed, layers=(8, 24))
        auto, exact = make_scheduler("auto").plan(problem), ExactScheduler().plan(problem)
        assert auto.method == "auto"
        assert auto.gap == 0
        assert auto.cost == pytest.approx(exact.cost, rel=1e-8)
