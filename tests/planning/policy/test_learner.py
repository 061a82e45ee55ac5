import numpy as np
import pytest

from heterps.planning.policy.features import features_of
from heterps.planning.policy.learner import Learner, one_thread
from heterps.planning.policy.network import Policy
from heterps.planning.reward import scores
from heterps.planning.schedulers import make_scheduler
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.problems import random_problem


@pytest.fixture
def single_thread():
    with one_thread():
        yield


STEPS, SAMPLES = 80, 64


@pytest.mark.slow
@pytest.mark.usefixtures("single_thread")
@pytest.mark.parametrize("seed", [0, 2])
def test_reinforce_from_scratch_learns(seed):
    """The mean sampled cost falls, and the best plan beats random search with as many plans."""
    problem = random_problem(seed, layers=(32, 32), types=(6, 6), limited=False)
    reference = ExactScheduler().plan(problem).cost
    learner = Learner(
        Policy.untrained("lstm", seed), features_of(problem.kernel), seed=seed, rate=5e-3
    )
    means, best, elite = [], np.inf, []
    for _ in range(STEPS):
        plans = learner.propose(SAMPLES)
        provisions = problem.kernel.provision(plans)
        score = scores(provisions, reference)
        order = np.argsort(score)
        elite = [*elite, *zip(score[order[:8]], plans[order[:8]], strict=True)]
        elite = sorted(elite, key=lambda entry: entry[0])[:8]
        learner.learn(plans, score, imitate=np.array([plan for _, plan in elite]))
        means.append(score.mean())
        best = min(best, provisions.cost.min())
    random = make_scheduler("random", seed=seed, evaluations=STEPS * SAMPLES).plan(problem)
    assert np.mean(means[-10:]) < 0.5 * np.mean(means[:10])
    assert best <= random.cost * (1 + 1e-9)
    final = scores(problem.kernel.provision(learner.propose(256)), reference).mean()
    assert final < scores_of_random_plans(problem, reference)


def scores_of_random_plans(problem, reference):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(problem.types), (256, problem.layers)).astype(np.int32)
    return scores(problem.kernel.provision(rows), reference).mean()


def test_learning_goes_on_from_a_saved_policy(tmp_path):
    problem = random_problem(0, layers=(8, 8), types=(2, 2))
    scheduler = make_scheduler("rl-scratch", steps=3, samples=16)
    _, tuned = scheduler.tune(problem)
    tuned.save(tmp_path / "tuned.npz")
    loaded = Policy.load(tmp_path / "tuned.npz")
    plan = make_scheduler("rl-lstm", steps=2, samples=16, policy=loaded).plan(problem)
    assert plan.cost >= ExactScheduler().plan(problem).cost * (1 - 1e-9)
