"""Where the time of a worker goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# What a worker does with its time; the rest is waiting.
FORWARD, BACKWARD, COMMIT, PREPARE, SEND, PREDICT = (
    "forward_s", "backward_s", "commit_s", "prepare_s", "send_s", "predict_s",
)  # fmt: skip
BUSY = (FORWARD, BACKWARD, COMMIT, PREPARE, SEND, PREDICT)
# What it waits for while it trains, by the causes that ``ReplicaProgram.why`` gives; their sum.
WAITS = ("input", "rows", "credit", "staleness", "gradients")
WAIT = "wait_s"


class Meter:
    """Seconds by purpose since its start, and how stale each batch's view was. While it does not
    train, all work is predicting."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys([*BUSY, *(f"wait_{cause}_s" for cause in WAITS)], 0.0)
        self._started = time.perf_counter()
        self._started_cpu_s = time.process_time()
        self._train_s, self._training_since = 0.0, 0.0
        self._committed_s, self._batches = 0.0, 0
        self._inside_s = 0.0  # of what is under way: measured already, for another purpose
        self.staleness: dict[int, int] = {}

    @contextmanager
    def measure(self, purpose: str) -> Iterator[None]:
        """What is measured inside it does not count twice."""
        began, around_s = time.perf_counter(), self._inside_s
        self._inside_s = 0.0
        try:
            yield
        finally:
            purpose = purpose if self._training_since else PREDICT
            passed = time.perf_counter() - began
            self._seconds[purpose] += passed - self._inside_s
            self._inside_s = around_s + passed

    def add(self, purpose: str, seconds: float) -> None:
        """What belongs to it, and passes at another moment."""
        self._seconds[purpose if self._training_since else PREDICT] += seconds

    @contextmanager
    def training(self) -> Iterator[None]:
        """Around a segment of batches."""
        self._training_since = time.perf_counter()
        try:
            yield
        finally:
            self._train_s, self._training_since = self._train_s_now, 0.0

    def waited(self, cause: str, since: float) -> None:
        """For something, from a moment of ``perf_counter`` until now."""
        if self._training_since:
            self._seconds[f"wait_{cause}_s"] += time.perf_counter() - since

    def committed(self) -> None:
        """One more batch."""
        self._batches += 1
        self._committed_s = self._train_s_now

    def note_staleness(self, batches: int) -> None:
        self.staleness[batches] = self.staleness.get(batches, 0) + 1

    def figures(self) -> dict[str, float]:
        """All seconds so far: ``wall_s`` since the start, ``train_s`` in training, of which
        ``committed_s`` until the last of so many ``batches``."""
        wall = time.perf_counter() - self._started
        cpu = time.process_time() - self._started_cpu_s
        times = {"wall_s": wall, "cpu_s": cpu, "train_s": self._train_s_now}
        done = {"committed_s": self._committed_s, "batches": float(self._batches)}
        waited = sum(self._seconds[f"wait_{cause}_s"] for cause in WAITS)
        return {**self._seconds, WAIT: waited, **times, **done}

    @property
    def _train_s_now(self) -> float:
        since = self._training_since
        return self._train_s + (time.perf_counter() - since if since else 0.0)


class Spans:
    """Seconds in which at least one of several things was under way; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self.seconds = 0.0

    def add(self, began: float, ended: float) -> None:
        """One of them, in about the order of their ends; moments of ``perf_counter``."""
        with self._lock:
            self.seconds += max(0.0, ended - max(began, self._until))
            self._until = max(self._until, ended)
