"""The end of a batch in a replica: gradients are summed over the replicas, then weights change."""

from __future__ import annotations

import threading
from collections.abc import Callable

from heterps.runtime.emulation import Emulation
from heterps.runtime.meter import COMMIT, Meter
from heterps.runtime.stage import Stage
from heterps.wire.wake import Wake


class Commits:
    """All at once by ``commit``, or ``begin``, and ``commit`` once the sum has ``arrived``, with
    work on later batches in between. ``exchanged_bytes`` is what a replica moves for it."""

    def __init__(
        self,
        stage: Stage,
        emulation: Emulation,
        meter: Meter,
        wake: Wake,
        exchanged_bytes: float,
    ) -> None:
        self._stage = stage
        self._emulation = emulation
        self._meter = meter
        self._wake = wake
        self._exchanged_bytes = exchanged_bytes
        self._ready = threading.Event()
        self._end: Callable[[], None] | None = None

    def begin(self, batch: int) -> None:
        """Its gradients go to the other replicas while this one works on."""

        def ready() -> None:
            self._ready.set()
            self._wake.set()

        self._emulation.pay()
        with self._meter.measure(COMMIT), self._emulation.work(waits=True):
            self._end = self._stage.begin_commit(batch, ready)

    def take_in(self, arrived: Callable[[], None]) -> None:
        """``arrived`` is called when the sum that was begun is there, its link included."""
        if self._ready.is_set():
            self._ready.clear()
            self._emulation.carry(self._exchanged_bytes, arrived)

    def commit(self, batch: int) -> None:
        end, self._end = self._end, None
        self._emulation.pay()
        with self._meter.measure(COMMIT):
            if end is not None:
                with self._emulation.work(waits=True):
                    end()
                return
            if self._stage.sums:
                # What has yet to leave may be what the others need to get here.
                self._emulation.settle()
            with self._emulation.work(waits=True):
                self._stage.commit(batch)
            self._emulation.exchange(self._exchanged_bytes)
