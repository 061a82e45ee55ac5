"""What a policy proposes before any tuning, in numpy, and the problems it is asked about later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Assignments, Kernel
from heterps.planning.policy.features import Features
from heterps.planning.policy.network import Policy, sample
from heterps.planning.variants import variant

FIRST_SAMPLES = 128
# How far limits and prices are shifted (log-normal), and the floor raised (exponential).
_SHIFT = 0.2
_HASTE = 0.1


def first_samples(policy: Policy, features: Features, seed: int) -> Assignments:
    """The likeliest plan layer by layer, then draws."""
    temperature = np.full(FIRST_SAMPLES, 1.0)
    temperature[0] = 0.0
    rng = np.random.default_rng([17, seed])
    return sample(policy.preferences(features), FIRST_SAMPLES, rng, temperature)


def beside(kernel: Kernel, rng: np.random.Generator) -> Kernel:
    """A problem a little beside the given one, with other limits and prices and a higher floor.

    Where a limit binds, the optimum is often what the policy would have said of such a problem: it
    sees limits as prices on units, and those jump where whole units are counted.
    """
    shift = rng.normal(0.0, _SHIFT, (2, len(kernel.limit)))
    return variant(
        kernel,
        limit=_shifted(kernel.limit, shift[0]),
        price=kernel.price * np.exp(shift[1] / 2),
        max_period_s=kernel.max_period_s * float(np.exp(-rng.exponential(_HASTE))),
    )


def _shifted(limit: NDArray[np.int64], shift: NDArray[np.float64]) -> NDArray[np.int64]:
    """A type that may be used stays usable, one that may not stays so."""
    return np.where(limit > 0, np.maximum(np.rint(limit * np.exp(shift)), 1), 0).astype(np.int64)


def eased(kernel: Kernel, rng: np.random.Generator) -> Kernel:
    """The problem with limits a third wider and each type dearer by a random amount, as if units
    beyond the limit had a price."""
    return variant(
        kernel,
        limit=np.ceil(kernel.limit * 1.3).astype(np.int64),
        price=kernel.price * np.exp(rng.uniform(0.0, 0.7, len(kernel.price))),
    )
