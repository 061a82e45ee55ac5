"""Takes the snapshots of a run while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from heterps.errors import ServerError
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.prepare import Setup
from heterps.runtime.snapshot import Snapshots, Writer
from heterps.runtime.standing import Standing

_PAUSE_S = 0.02


class SnapshotTaker:
    """``said`` gets what came of each: its step, path, stall and seconds, or its ``error``. The
    stall is how long training stood still; writing goes on beside it."""

    def __init__(
        self,
        setup: Setup,
        run: Path,
        coordinator: Coordinator,
        said: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._setup = setup
        self._own = setup.job.snapshot
        self._coordinator = coordinator
        self._said = said
        self._snapshots = Snapshots(run, self._own.keep)
        self._writer = Writer()
        self._taken_at = time.monotonic()
        self.last_written: int | None = None  # the step of the last one that is whole

    def begin(self) -> None:
        """The time to the first one counts from now."""
        self._taken_at = time.monotonic()

    @property
    def late(self) -> bool:
        """One is due by time, and the last is written."""
        due = self._own.every_s > 0 and time.monotonic() - self._taken_at >= self._own.every_s
        return due and not self._writer.busy

    def due(self, step: int) -> bool:
        by_step = self._own.every is not None and step % self._own.every == 0
        return by_step or self.late

    def take(self, standing: Standing) -> None:
        """Returns when every process holds on to what it has, which they do for one at a time."""
        began = time.monotonic()
        self.finish()
        step, coordinator = standing.step, self._coordinator
        state = coordinator.state()
        coordinator.while_watching(coordinator.client.capture)
        about = self._about(standing)
        self._taken_at = time.monotonic()
        stall = self._taken_at - began

        def write() -> Mapping[str, Any]:
            written = time.monotonic()
            path = self._write(step, state, about)
            seconds = time.monotonic() - written
            return {"step": step, "path": str(path), "stall_s": stall, "seconds": seconds}

        self._writer.start(write)

    def finish(self) -> None:
        """Until the last is written or has failed; processes are looked after meanwhile."""
        while self._writer.busy:
            self._coordinator.receive(_PAUSE_S)
        self.hear()

    def abandon(self) -> None:
        """After the processes have gone: what was being written fails, which says nothing new."""
        self._writer.finish()
        for outcome in self._writer.outcomes():
            if "error" not in outcome:
                self._heard(outcome)

    def hear(self) -> None:
        """Passes on what came of those that have ended."""
        for outcome in self._writer.outcomes():
            self._heard(outcome)

    def _heard(self, outcome: Mapping[str, Any]) -> None:
        self.last_written = outcome.get("step", self.last_written)
        self._said(outcome)

    def _about(self, standing: Standing) -> dict[str, Any]:
        plan = self._setup.layout.train
        return {
            "standing": asdict(standing),
            "lanes": plan.lanes,
            "cursors": list(plan.cursors(plan.batch(standing.step).first)),
            "seed": self._setup.job.seed,
        }

    def _write(self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> Path:
        client = self._coordinator.client
        try:
            return self._snapshots.write(step, state, about, client.save)
        except Exception:
            self._release()
            raise

    def _release(self) -> None:
        try:
            self._coordinator.client.release()
        except ServerError:
            return  # it has gone, and with it what it held
