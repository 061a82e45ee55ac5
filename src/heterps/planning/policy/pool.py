"""The best plans a search has seen, and which of them it has looked around."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Assignments, Kernel, Provisions
from heterps.planning.neighbours import crossings, neighbours, span_neighbours
from heterps.planning.reward import scores

Around = Callable[[NDArray[np.int32], int], NDArray[np.int32]]


class Pool:
    """Prices assignments, each once, and keeps the ``size`` best by score (lower is better)."""

    def __init__(self, kernel: Kernel, size: int = 64) -> None:
        self.kernel = kernel
        self.size = size
        self.evaluations = 0
        self.plans: list[NDArray[np.int32]] = []
        self.scores: list[float] = []
        self.cost = np.inf
        self._reference: float | None = None
        self._keys: list[bytes] = []
        self._expanded: set[bytes] = set()
        self._widened: set[bytes] = set()
        self._ends: list[tuple[float, NDArray[np.int32]]] = []
        self._kept: set[bytes] = set()

    def add(self, assignments: Assignments) -> NDArray[np.float64]:
        """Prices the rows, keeps the good ones, returns the score of each."""
        provisions = self.kernel.provision(assignments)
        self.evaluations += len(assignments)
        result = self._score(provisions)
        worst = self.scores[-1] if len(self.scores) >= self.size else np.inf
        for index in np.argsort(result, kind="stable")[: self.size]:
            if result[index] >= worst:
                break
            self._insert(assignments[index], float(result[index]), float(provisions.cost[index]))
        self._trim()
        return result

    def look_around(self, count: int) -> int:
        """Adds the neighbours of the ``count`` best plans not looked around yet; how many there
        were."""
        return self._look(count, self.size, self._expanded, neighbours)

    def look_wide(self, count: int, among: int = 8) -> int:
        """The same with every span of layers given one type, for the best few plans only: it is
        many times dearer, and finds what no small move leads to."""
        return self._look(count, among, self._widened, span_neighbours)

    def _look(self, count: int, among: int, done: set[bytes], around: Around) -> int:
        fresh = [i for i, key in enumerate(self._keys[:among]) if key not in done][:count]
        chosen = [(self._keys[i], self.plans[i]) for i in fresh]
        for key, plan in chosen:
            done.add(key)
            rows = around(plan, len(self.kernel.limit))
            if len(rows):
                self.add(rows)
        return len(chosen)

    def descend_apart(self, assignments: Assignments, looks: int) -> None:
        """Looks around the best of the rows, then the best of what that shows, and so on, without
        regard to the plans known here; the end of the descent joins them. A way out where all that
        is good looks alike."""
        apart = Pool(self.kernel, size=8)
        apart.add(assignments)
        while looks > 0 and apart.look_around(1):
            looks -= 1
        self.evaluations += apart.evaluations
        # Scored anew here: each pool measures against the first plan it met.
        reached = self.add(apart.elite(8))
        self._ends.append((float(reached[0]), apart.plans[0]))

    def recombine(self, parents: int = 10, most: int = 6000) -> None:
        """Adds what comes of putting up to three neighbouring stages of one good plan into another;
        the good plans are where the separate descents ended, and the best known."""
        ends = sorted(self._ends, key=lambda entry: entry[0])[: parents - 1]
        known = [*self.plans[:1], *(plan for _, plan in ends)]
        rows = crossings(np.array(known, np.int32))
        self.add(rows[:: -(-len(rows) // most)] if len(rows) > most else rows)

    @property
    def best(self) -> NDArray[np.int32] | None:
        """The best feasible plan."""
        return self.plans[0] if np.isfinite(self.cost) else None

    def elite(self, count: int) -> Assignments:
        return np.array(self.plans[:count], np.int32).reshape(-1, self.kernel.problem.layers)

    def _score(self, provisions: Provisions) -> NDArray[np.float64]:
        if self._reference is None and provisions.feasible.any():
            self._reference = max(float(provisions.cost.min()), 1e-300)
        return scores(provisions, self._reference or 1.0)

    def _insert(self, plan: NDArray[np.int32], score: float, cost: float) -> None:
        key = plan.tobytes()
        if key in self._kept:
            return
        at = int(np.searchsorted(self.scores, score, side="right"))
        self._kept.add(key)
        self.plans.insert(at, plan.copy())
        self.scores.insert(at, score)
        self._keys.insert(at, key)
        self.cost = min(self.cost, cost)

    def _trim(self) -> None:
        for key in self._keys[self.size :]:
            self._kept.discard(key)
        del self.plans[self.size :], self.scores[self.size :], self._keys[self.size :]
