"""Where the time of a worker goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

# What a worker does with its time.
FORWARD, BACKWARD, COMMIT, PREPARE, SEND, PREDICT = (
    "forward_s", "backward_s", "commit_s", "prepare_s", "send_s", "predict_s",
)  # fmt: skip
BUSY = (FORWARD, BACKWARD, COMMIT, PREPARE, SEND, PREDICT)
WAIT = "wait_s"  # with nothing to do; what then is left of the time is the loop itself


class Meter:
    """Seconds by purpose since its start, and how stale each batch's view was."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys((*BUSY, WAIT), 0.0)
        self._started = time.perf_counter()
        self._started_cpu_s = time.process_time()
        self.staleness: dict[int, int] = {}

    @contextmanager
    def measure(self, purpose: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[purpose] += time.perf_counter() - began

    def note_staleness(self, batches: int) -> None:
        self.staleness[batches] = self.staleness.get(batches, 0) + 1

    def figures(self) -> dict[str, float]:
        """All seconds so far; ``wall_s`` is what they are shares of."""
        wall = time.perf_counter() - self._started
        cpu = time.process_time() - self._started_cpu_s
        return {**self._seconds, "wall_s": wall, "cpu_s": cpu}
