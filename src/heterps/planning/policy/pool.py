"""The best plans a search has seen, and which of them it has looked around."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Assignments, Kernel, Provisions
from heterps.planning.neighbours import crossings, exchanges, neighbours
from heterps.planning.reward import scores

# Of the neighbours, how many are tried two at a time, and in how many pairs.
_EXCHANGED = 30
_PAIRS = 600


@dataclass(frozen=True)
class _Entry:
    score: float
    cost: float
    plan: NDArray[np.int32]
    key: bytes


class Pool:
    """Prices assignments and keeps the ``size`` best by score (lower is better), each once."""

    def __init__(self, kernel: Kernel, size: int = 64) -> None:
        self.kernel = kernel
        self.size = size
        self.evaluations = 0
        self.cost = np.inf
        self._reference: float | None = None
        self._entries: list[_Entry] = []
        self._around: set[bytes] = set()
        self._exchanged: set[bytes] = set()
        self._ends: list[_Entry] = []

    def add(self, assignments: Assignments, *, exact: bool = True) -> NDArray[np.float64]:
        """Prices the rows, keeps the good ones, returns the score of each: too high a one, if not
        ``exact``, for rows that are not good enough to be kept."""
        provisions = self.kernel.provision(assignments, worth=np.inf if exact else self._worth())
        self.evaluations += len(assignments)
        self.cost = min(self.cost, float(provisions.cost.min(initial=np.inf)))
        result = self._score(provisions)
        worst = self._entries[-1].score if len(self._entries) >= self.size else np.inf
        known = {entry.key for entry in self._entries}
        for index in np.argsort(result, kind="stable")[: self.size]:
            if result[index] >= worst:
                break
            entry = _entry(assignments[index], result[index], provisions.cost[index])
            if entry.key not in known:
                known.add(entry.key)
                insort(self._entries, entry, key=attrgetter("score"))
        del self._entries[self.size :]
        return result

    def look_around(self, count: int) -> int:
        """Adds the neighbours of the ``count`` best plans not looked around yet; how many there
        were."""

        def around(plan: NDArray[np.int32]) -> NDArray[np.int32]:
            return neighbours(plan, len(self.kernel.limit))

        return self._look(count, self.size, self._around, around)

    def look_for_exchanges(self, eased: Kernel, count: int = 1, among: int = 8) -> int:
        """Adds pairs of moves from the best few plans. Each move alone may break a limit: the
        moves to pair are those that cost least in ``eased``, a problem with wider limits."""

        def around(plan: NDArray[np.int32]) -> NDArray[np.int32]:
            rows = neighbours(plan, len(self.kernel.limit))
            self.evaluations += len(rows)
            cost = eased.provision(rows).cost
            order = np.argsort(cost, kind="stable")[:_EXCHANGED]
            return exchanges(plan, rows[order[np.isfinite(cost[order])]], _PAIRS)

        return self._look(count, among, self._exchanged, around)

    def _look(
        self,
        count: int,
        among: int,
        done: set[bytes],
        around: Callable[[NDArray[np.int32]], NDArray[np.int32]],
    ) -> int:
        fresh = [entry for entry in self._entries[:among] if entry.key not in done][:count]
        for entry in fresh:
            done.add(entry.key)
            rows = around(entry.plan)
            if len(rows):
                self.add(rows, exact=False)
        return len(fresh)

    def descend_apart(self, assignments: Assignments, looks: int, eased: Kernel) -> None:
        """Looks around the best of the rows, then the best of what that shows, and so on, without
        regard to the plans known here; the end of the descent joins them. A way out where all that
        is good looks alike."""
        apart = Pool(self.kernel, size=8)
        apart.add(assignments)
        for look in range(looks):
            if not apart.look_around(1):
                break
            if look % 4 == 3:
                apart.look_for_exchanges(eased)
        self.evaluations += apart.evaluations
        # Scored anew here: each pool measures against the first plan it met.
        end = apart.elite(8)
        reached = self.add(end)
        self._ends.append(_entry(end[0], reached[0], np.inf))

    def recombine(self, parents: int = 10, most: int = 6000) -> None:
        """Adds what comes of putting up to three neighbouring stages of one good plan into another;
        the good plans are where the separate descents ended, and the best known."""
        ends = sorted(self._ends, key=attrgetter("score"))[: parents - 1]
        known = [entry.plan for entry in [*self._entries[:1], *ends]]
        rows = crossings(np.array(known, np.int32))
        self.add(rows[:: -(-len(rows) // most)] if len(rows) > most else rows, exact=False)

    @property
    def best(self) -> NDArray[np.int32] | None:
        """The best feasible plan."""
        return self._entries[0].plan if np.isfinite(self.cost) else None

    def elite(self, count: int) -> Assignments:
        """The best plans, best first; fewer where fewer are known."""
        plans = [entry.plan for entry in self._entries[:count]]
        return np.array(plans, np.int32).reshape(-1, self.kernel.problem.layers)

    def _worth(self) -> float:
        """What a plan must cost less than to be kept."""
        return self._entries[-1].cost if len(self._entries) >= self.size else np.inf

    def _score(self, provisions: Provisions) -> NDArray[np.float64]:
        if self._reference is None and provisions.feasible.any():
            self._reference = max(float(provisions.cost.min()), 1e-300)
        return scores(provisions, self._reference or 1.0)


def _entry(plan: NDArray[np.int32], score: float, cost: float) -> _Entry:
    return _Entry(float(score), float(cost), plan.astype(np.int32), plan.astype(np.int32).tobytes())
