"""Every plan in real processes gives what a plain loop in one process gives."""

import itertools
import random

import pytest

from heterps.testing.runs import SMALL, epochs_for, reference, run, small_job

STEPS = 200
PLANS = [(1,), (2,), (3,), (1, 1), (2, 1), (1, 2), (3, 2), (1, 1, 1), (1, 2, 3), (3, 2, 1)]
SERVERS = (1, 2, 3)
# How far apart the weights of a layer may be, relative to their size.
CLOSE = {"sgd": 1e-5, "adam": 1e-2, "float64": 1e-9}
SETTINGS = {
    "sgd": {},
    "adam": {"optimizer": {"name": "adam", "lr": 0.001}},
    "float64": {"dtype": "float64"},
}
MATRIX = list(itertools.product(SMALL, PLANS, SERVERS, SETTINGS))
_references = {}


def sample():
    """Each model once and the longest plan among them; no two of them have the same setting but
    one."""
    draw = random.Random(4)
    plans = [(3, 2, 1), *draw.sample(PLANS[:-1], 3)]
    settings = [*SETTINGS, "sgd"]
    draw.shuffle(settings)
    return list(zip(SMALL, plans, draw.choices(SERVERS, k=4), settings, strict=True))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, model, replicas, servers, setting):
    job = small_job(data, model, replicas)
    epochs = epochs_for(job, STEPS)
    changes = {"servers__count": servers, "workload__epochs": epochs, **SETTINGS[setting]}
    return small_job(data, model, replicas, **changes)


def expected(data, model, setting):
    """Which does not depend on the plan."""
    if (model, setting) not in _references:
        _references[model, setting] = reference(make_job(data, model, (1,), 1, setting))
    return _references[model, setting]


def check(data, out, model, replicas, servers, setting):
    _, found = run(make_job(data, model, replicas, servers, setting), out)
    wanted = expected(data, model, setting)
    assert len(found.losses) == STEPS
    assert found.losses == pytest.approx(wanted.losses, rel=1e-4)
    assert found.distance(wanted) <= CLOSE[setting]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "replicas", "servers", "setting"), sample())
def test_a_plan_ends_where_one_process_does(data, tmp_path, model, replicas, servers, setting):
    check(data, tmp_path / "run", model, replicas, servers, setting)


@pytest.mark.soak
@pytest.mark.parametrize(("model", "replicas", "servers", "setting"), MATRIX)
def test_every_plan_ends_where_one_process_does(data, tmp_path, model, replicas, servers, setting):
    check(data, tmp_path / "run", model, replicas, servers, setting)


@pytest.mark.slow
def test_the_same_plan_and_seed_twice_are_the_same_to_the_bit(data, tmp_path):
    job = small_job(data, "two_emb", (3, 2), servers__count=2, optimizer__name="adam")
    first, second = (run(job, tmp_path / name)[1] for name in ("first", "second"))
    assert first.equals(second)


@pytest.mark.soak
@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("replicas", [(3,), (2, 1), (3, 2, 1)])
def test_every_model_twice_is_the_same_to_the_bit(data, tmp_path, model, replicas):
    job = make_job(data, model, replicas, 3, "adam")
    first, second = (run(job, tmp_path / name)[1] for name in ("first", "second"))
    assert first.equals(second)


@pytest.mark.slow
def test_another_seed_is_another_run(data, tmp_path):
    """So that the tests above compare something."""
    first, second = (
        reference(small_job(data, "two_emb", seed=seed, workload__epochs=0.2)) for seed in (5, 6)
    )
    assert not first.equals(second)
    assert first.losses != pytest.approx(second.losses, rel=1e-4)
