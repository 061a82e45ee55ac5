"""Where the time of simulated replicas, links and servers goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heterps.planning.replica_queue import CAUSES
from heterps.planning.simulation import SimulatedStage


@dataclass(frozen=True)
class _Mark:
    """All sums at one moment."""

    compute: list[float]
    link: list[float]
    waited: list[dict[str, float]]
    servers: float


@dataclass(frozen=True)
class StageShares:
    compute_busy: float
    link_busy: float
    busiest: float
    waiting: dict[str, float]

    def named(self, type_name: str, units: int) -> SimulatedStage:
        busy = (self.compute_busy, self.link_busy, self.busiest)
        return SimulatedStage(type_name, units, *busy, self.waiting)


@dataclass
class TimeUse:
    """Seconds so far, by replica; ``mark`` keeps them, ``shares`` tells what lies between two."""

    replicas: Sequence[int]
    compute: list[float] = field(init=False)
    link: list[float] = field(init=False)
    servers: float = 0.0

    def __post_init__(self) -> None:
        count = sum(self.replicas)
        self.compute, self.link = [0.0] * count, [0.0] * count
        self._waited = [dict.fromkeys(CAUSES, 0.0) for _ in range(count)]
        self._since = [0.0] * count
        self._cause: list[str | None] = [None] * count
        self._marks: dict[int, _Mark] = {}

    def idles(self, replica: int, now: float, cause: str) -> None:
        """From now on it waits, for this."""
        self.works(replica, now)
        self._cause[replica] = cause

    def works(self, replica: int, now: float) -> None:
        before = self._cause[replica]
        if before is not None:
            self._waited[replica][before] += now - self._since[replica]
        self._since[replica], self._cause[replica] = now, None

    def mark(self, name: int, now: float) -> None:
        for replica, cause in enumerate(self._cause):
            if cause is not None:
                self.idles(replica, now, cause)
        waited = [dict(entry) for entry in self._waited]
        self._marks[name] = _Mark(list(self.compute), list(self.link), waited, self.servers)

    def shares(self, first: int, last: int, seconds: float) -> tuple[list[StageShares], float]:
        """Of the time between two marks: of each stage, and of the servers."""
        before, after = self._marks[first], self._marks[last]
        if seconds <= 0:
            nothing = StageShares(0.0, 0.0, 0.0, dict.fromkeys(CAUSES, 0.0))
            return [nothing] * len(self.replicas), 0.0
        found, start = [], 0
        for units in self.replicas:
            found.append(_stage_shares(before, after, range(start, start + units), seconds))
            start += units
        return found, min(1.0, (after.servers - before.servers) / seconds)


def _stage_shares(before: _Mark, after: _Mark, own: range, seconds: float) -> StageShares:
    compute = [min(1.0, (after.compute[at] - before.compute[at]) / seconds) for at in own]
    link = [min(1.0, (after.link[at] - before.link[at]) / seconds) for at in own]
    waiting = {
        cause: sum(after.waited[at][cause] - before.waited[at][cause] for at in own)
        / (seconds * len(own))
        for cause in CAUSES
    }
    busy = (sum(compute) / len(own), sum(link) / len(own))
    return StageShares(*busy, max(*compute, *link), waiting)
