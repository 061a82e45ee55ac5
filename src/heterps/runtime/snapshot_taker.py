"""Takes the snapshots of a run while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from heterps.errors import ServerError
from heterps.ps.client import Saved
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.prepare import Setup
from heterps.runtime.saved_model import TABLES
from heterps.runtime.snapshot import RunSnapshot, Snapshots, next_base
from heterps.runtime.snapshot_writer import Writer
from heterps.runtime.standing import Standing
from heterps.storage.places import Place

_PAUSE_S = 0.02


class SnapshotTaker:
    """``said`` gets what came of each: its step, path, base, rows, stall, seconds, and processor
    time, or its ``error``. The stall is how long training stood still; writing goes on beside it,
    and its processor time is that of the servers and of this process."""

    def __init__(
        self,
        setup: Setup,
        run: Path,
        coordinator: Coordinator,
        said: Callable[[Mapping[str, Any]], None],
        start: RunSnapshot | None = None,
    ) -> None:
        """``start`` is what the processes have loaded."""
        self._setup = setup
        self._own = setup.job.snapshot
        self._coordinator = coordinator
        self._said = said
        self._snapshots = Snapshots.of(run, setup.job)
        self._writer = Writer()
        self._taken_at = time.monotonic()
        self.last_written: int | None = None  # the step of the last one that is whole
        # The step and tables that the servers know as the last.
        self._last = (start.step, start.tables) if start is not None else None

    def begin(self) -> None:
        """The time to the first one counts from now."""
        self._taken_at = time.monotonic()

    @property
    def late(self) -> bool:
        """One is due by time, and the last is written."""
        due = self._own.every_s > 0 and time.monotonic() - self._taken_at >= self._own.every_s
        return due and not self._writer.busy

    def due(self, step: int) -> bool:
        """A disk is waited for. What a slow store has not taken yet is not: training goes on, and
        one is left out."""
        by_step = self._own.every is not None and step % self._own.every == 0
        waits = self._snapshots.are_remote and self._writer.busy
        return (by_step and not waits) or self.late

    def take(
        self,
        standing: Standing,
        more: Mapping[str, Tensor] | None = None,
        about_data: Mapping[str, Any] | None = None,
    ) -> None:
        """Returns when every process holds on to what it has, which they do for one at a time.
        ``more`` goes with the weights, ``about_data`` into the manifest."""
        began = time.monotonic()
        self.finish()
        step, coordinator = standing.step, self._coordinator
        base = self._base(step)
        state = {**coordinator.state(), **(more or {})}
        coordinator.while_watching(lambda: coordinator.client.capture(delta_of=base))
        about = {**self._about(standing), **(about_data or {})}
        self._taken_at = time.monotonic()
        stall = self._taken_at - began

        def write() -> Mapping[str, Any]:
            written = time.monotonic()
            found = self._write(step, state, about, base)
            seconds = time.monotonic() - written
            return {"step": step, "stall_s": stall, "seconds": seconds, **found}

        self._writer.start(write)

    def _base(self, step: int) -> Place | None:
        """The tables of the last one, of which this is a delta, unless it is time for a whole one,
        or the last is elsewhere. A step that is reached again is written again: it is no delta of
        itself."""
        if self._last is None or self._last[0] == step:
            return None
        if self._last[1].parent.parent != self._snapshots.folder:
            return None
        return next_base(self._last[1])

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
        if "error" in outcome:
            self._last = None  # servers may hold on to what is not there
        else:
            self.last_written = outcome["step"]
            self._last = (outcome["step"], outcome["path"] / TABLES)
            outcome = {**outcome, "path": str(outcome["path"])}
        self._said(outcome)

    def _about(self, standing: Standing) -> dict[str, Any]:
        plan = self._coordinator.layout.train
        return {
            "standing": asdict(standing),
            "lanes": plan.lanes,
            "cursors": list(plan.cursors(plan.batch(standing.step).first)),
            "data": {
                "samples": plan.samples,
                "micro_batch_size": plan.micro_batch_size,
                "micro_batches": plan.micro_batches,
            },
            "seed": self._setup.job.seed,
        }

    def _write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], base: Place | None
    ) -> dict[str, Any]:
        client, began = self._coordinator.client, time.thread_time()
        saved: list[Saved] = []
        try:
            path = self._snapshots.write(
                step, state, about, lambda path: saved.append(client.save(path, delta_of=base))
            )
        except Exception:
            self._release()
            raise
        found = {"path": path, "delta_of": base.parent.name if base else None}
        cpu_s = saved[0].cpu_s + time.thread_time() - began
        return {**found, "rows": saved[0].rows, "cpu_s": cpu_s}

    def _release(self) -> None:
        try:
            self._coordinator.client.release()
        except ServerError:
            return  # it has gone, and with it what it held
