"""REINFORCE on one problem: propose plans, learn from how they did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from heterps.planning.kernel import Assignments, Kernel
from heterps.planning.policy.features import Features, features_of
from heterps.planning.policy.network import Policy, Preferences, sample
from heterps.planning.policy.proposals import beside
from heterps.planning.policy.training import (
    FeatureBatch,
    PolicyNetwork,
    as_preferences,
    log_probability,
)


@contextmanager
def one_thread() -> Iterator[None]:
    """The network is too small to share out, and one thread gives the same result everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_FORGET = 0.8  # of the moving baseline, per step


class Learner:
    """A policy that is tuned on the problem at hand.

    The reward may come from anywhere, the cost model or a measured run: ``propose`` plans, score
    them (lower is better), ``learn``.
    """

    def __init__(self, policy: Policy, features: Features, *, seed: int, rate: float) -> None:
        self._network = PolicyNetwork(policy)
        self._batch = FeatureBatch.of([features])
        self._rng = np.random.default_rng([13, seed])
        trained = [p for p in self._network.parameters() if p.requires_grad]
        self._optimizer = torch.optim.Adam(trained, lr=rate)
        self._baseline: float | None = None

    @property
    def policy(self) -> Policy:
        """The policy as tuned so far, to save or to go on with."""
        return self._network.policy()

    def preferences(self) -> Preferences:
        with torch.no_grad():
            prefer, stay = self._network(self._batch)
        return as_preferences(prefer, stay, 0, self._batch)

    def propose(self, count: int) -> Assignments:
        return sample(self.preferences(), count, self._rng)

    def learn(
        self,
        plans: Assignments,
        scores: NDArray[np.float64],
        imitate: Assignments | None = None,
        weight: float = 0.5,
    ) -> None:
        """One step: plans that did better than the moving baseline become likelier, and so do the
        best plans known (``imitate``)."""
        mean = float(scores.mean())
        if self._baseline is None:
            self._baseline = mean
        advantage = (self._baseline - scores) / (scores.std() + 1e-3)
        self._baseline = _FORGET * self._baseline + (1 - _FORGET) * mean
        self._optimizer.zero_grad()
        prefer, stay = self._network(self._batch)
        reward = torch.from_numpy(advantage.astype(np.float32))
        loss = -(reward * self._log_probability(prefer, stay, plans)).mean()
        if imitate is not None and len(imitate):
            loss = loss - weight * self._log_probability(prefer, stay, imitate).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
        self._optimizer.step()

    def _log_probability(
        self, prefer: torch.Tensor, stay: torch.Tensor, plans: Assignments
    ) -> torch.Tensor:
        rows = torch.from_numpy(plans.astype(np.int64))[None]
        logp: torch.Tensor = log_probability(prefer, stay, rows, self._batch.layers)[0]
        return logp.div(plans.shape[1])


class Adviser:
    """What a policy, untuned, says of problems a little beside the given one."""

    _AT_ONCE = 8

    def __init__(self, policy: Policy, kernel: Kernel, rng: np.random.Generator) -> None:
        self._network = PolicyNetwork(policy)
        self._kernel = kernel
        self._rng = rng
        self._views: list[Preferences] = []

    def propose(self, count: int) -> Assignments:
        """Plans for one such problem, another with each call."""
        if not self._views:
            self._views = self._ask()
        return sample(self._views.pop(), count, self._rng)

    def _ask(self) -> list[Preferences]:
        asked = [features_of(beside(self._kernel, self._rng)) for _ in range(self._AT_ONCE)]
        batch = FeatureBatch.of(asked)
        with torch.no_grad():
            prefer, stay = self._network(batch)
        return [as_preferences(prefer, stay, index, batch) for index in range(len(asked))]
