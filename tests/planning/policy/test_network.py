import numpy as np
import pytest

from heterps.errors import PolicyError
from heterps.planning.policy.features import features_of
from heterps.planning.policy.network import Policy, sample
from heterps.planning.policy.training import FeatureBatch, PolicyNetwork, as_preferences
from heterps.testing.problems import random_problem


@pytest.fixture(scope="module")
def problems():
    return [random_problem(seed, layers=(5, 20)) for seed in range(4)]


@pytest.mark.parametrize("cell", ["lstm", "rnn"])
def test_numpy_and_torch_compute_the_same_preferences(cell, problems):
    policy = Policy.untrained(cell, 3)
    features = [features_of(problem.kernel) for problem in problems]
    batch = FeatureBatch.of(features)
    prefer, stay = PolicyNetwork(policy)(batch)
    for index, entry in enumerate(features):
        ours, theirs = policy.preferences(entry), as_preferences(prefer, stay, index, batch)
        np.testing.assert_allclose(ours.prefer, theirs.prefer, atol=1e-4)
        np.testing.assert_allclose(ours.stay, theirs.stay, atol=1e-4)


def test_network_gives_back_the_weights_it_was_made_of():
    policy = Policy.untrained("lstm", 1)
    again = PolicyNetwork(policy).policy()
    for name, value in policy.weights.items():
        np.testing.assert_array_equal(again.weights[name], value)


def test_preferences_follow_the_types_when_they_are_reordered(problems):
    policy = Policy.untrained("lstm", 0)
    features = features_of(problems[0].kernel)
    order = np.random.default_rng(0).permutation(features.pair.shape[1])
    turned = type(features)(features.layer, features.pair[:, order], features.runs[:, order])
    before, after = policy.preferences(features), policy.preferences(turned)
    np.testing.assert_allclose(after.prefer, before.prefer[:, order], rtol=1e-4, atol=1e-5)


def test_saved_policy_loads_and_decides_alike(tmp_path, problems):
    policy = Policy.shipped("lstm")
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    features = features_of(problems[0].kernel)
    np.testing.assert_array_equal(
        again.preferences(features).prefer, policy.preferences(features).prefer
    )


@pytest.mark.parametrize("content", [b"", b"not a policy", b"PK\x03\x04 torn"])
def test_broken_policy_file_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(PolicyError, match=r"broken\.npz"):
        Policy.load(path)


def test_weights_of_another_shape_are_refused():
    weights = dict(Policy.untrained("lstm", 0).weights)
    weights["head.bias"] = np.zeros(3, np.float32)
    with pytest.raises(PolicyError, match="do not fit"):
        Policy("lstm", weights)


def test_sampling_never_takes_a_type_that_cannot_run_the_layer(problems):
    features = features_of(problems[1].kernel)
    runs = features.runs.copy()
    runs[::2, 0] = False
    blocked = type(features)(features.layer, features.pair, runs)
    preferences = Policy.untrained("lstm", 0).preferences(blocked)
    plans = sample(preferences, 200, np.random.default_rng(0))
    assert not (plans[:, ::2] == 0).any()


def test_sampling_follows_the_stay_bonus():
    preferences = Policy.untrained("lstm", 0).preferences(
        features_of(random_problem(1, layers=(30, 30)).kernel)
    )
    loyal = type(preferences)(preferences.prefer, np.full_like(preferences.stay, 50.0))
    plans = sample(loyal, 20, np.random.default_rng(0))
    assert (plans == plans[:, :1]).all()


def test_shipped_policies_fit_in_a_megabyte():
    from importlib.resources import files

    folder = files("heterps.planning.policy")
    assert sum(len((folder / f"{cell}.npz").read_bytes()) for cell in ("lstm", "rnn")) <= 1_000_000
