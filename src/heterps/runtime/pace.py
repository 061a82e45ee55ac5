"""Replicas against their peers, and a run against its prediction: from figures to findings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SLOW = 1.5  # times its peers' time for a sample
PERSISTENT = 3  # looks in a row
_LEAST_SAMPLES = 32  # between two looks


@dataclass(frozen=True)
class Work:
    """What a replica has done so far."""

    samples: int
    busy_s: float


@dataclass(frozen=True)
class Slow:
    """A replica and its peers: seconds for a sample, over the last look."""

    worker: int
    sample_s: float
    peers_sample_s: float

    @property
    def times(self) -> float:
        return self.sample_s / self.peers_sample_s


class Peers:
    """The replicas of one stage, looked at every few seconds."""

    def __init__(self) -> None:
        self._before: dict[int, Work] = {}
        self._row: dict[int, int] = {}

    def look(self, now: Mapping[int, Work]) -> list[Slow]:
        """Those that have just been slower than their peers for the third time in a row."""
        paces = {}
        for worker, work in now.items():
            before = self._before.get(worker, Work(0, 0.0))
            samples = work.samples - before.samples
            if samples >= _LEAST_SAMPLES:
                paces[worker] = (work.busy_s - before.busy_s) / samples
        if len(paces) < len(now) or len(now) < 2:
            return []
        self._before = dict(now)
        return [found for worker in paces if (found := self._judge(worker, paces)) is not None]

    def _judge(self, worker: int, paces: Mapping[int, float]) -> Slow | None:
        peers = statistics.median(pace for other, pace in paces.items() if other != worker)
        slow = peers > 0 and paces[worker] > SLOW * peers
        self._row[worker] = self._row.get(worker, 0) + 1 if slow else 0
        if self._row[worker] != PERSISTENT:
            return None
        return Slow(worker, paces[worker], peers)


def drift(measured: float, predicted: float | None, margin: float) -> dict[str, Any] | None:
    """The figures, when a run's throughput (samples per second) is off by more than a margin."""
    if not predicted or math.isnan(measured):
        return None
    ratio = measured / predicted
    if abs(ratio - 1) <= margin:
        return None
    return {"measured": measured, "predicted": predicted, "ratio": ratio, "margin": margin}
