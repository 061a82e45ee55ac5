"""What a policy proposes before any tuning, in numpy."""

from __future__ import annotations

import numpy as np

from heterps.planning.kernel import Assignments
from heterps.planning.policy.features import Features
from heterps.planning.policy.network import Policy, sample

FIRST_SAMPLES = 128


def first_samples(policy: Policy, features: Features, seed: int) -> Assignments:
    """The likeliest plan layer by layer, then draws."""
    temperature = np.full(FIRST_SAMPLES, 1.0)
    temperature[0] = 0.0
    rng = np.random.default_rng([17, seed])
    return sample(policy.preferences(features), FIRST_SAMPLES, rng, temperature)
