import pytest

from heterps.planning.schedulers import METHODS, make_scheduler
from heterps.testing.conformance import CHECKS

# Enough for tiny problems.
OPTIONS = {
    "random": {"evaluations": 500},
    "genetic": {"evaluations": 200, "population": 20},
    "bayesian": {"evaluations": 40, "random_trials": 10},
    "rl-lstm": {"steps": 3},
    "rl-rnn": {"steps": 3},
    "rl-scratch": {"steps": 3},
}


def _marked(method):
    slow = [pytest.mark.slow] if method in ("bayesian", "rl-rnn", "rl-scratch") else []
    return pytest.param(method, marks=slow)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("method", [_marked(method) for method in METHODS])
def test_scheduler_conforms(method, check):
    check(lambda seed: make_scheduler(method, seed=seed, **OPTIONS.get(method, {})))
