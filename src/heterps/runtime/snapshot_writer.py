"""Writes the snapshots of a run beside its training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from heterps.errors import HeterPSError


class Writer:
    """Writes in a thread of its own, one snapshot at a time, while training goes on."""

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], Mapping[str, Any]]) -> None:
        """Not while it is busy."""
        assert not self.busy
        self._thread = threading.Thread(target=self._run, args=(work,), name="snapshot")
        self._thread.start()

    def finish(self) -> None:
        """Waits."""
        if self._thread is not None:
            self._thread.join()

    def outcomes(self) -> Iterator[Mapping[str, Any]]:
        """What came of those that have ended since the last call; of a failed one its ``error``."""
        while not self._outcomes.empty():
            yield self._outcomes.get()

    def _run(self, work: Callable[[], Mapping[str, Any]]) -> None:
        try:
            self._outcomes.put(work())
        except (HeterPSError, OSError) as error:
            # A full disk, or a store that does not answer, stops the snapshot, not the training.
            self._outcomes.put({"error": str(error)})
