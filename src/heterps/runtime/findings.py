"""What a run finds out about itself on its way, and tells: slow replicas, drift, and losses that
are no numbers any more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from heterps.events import EventLog
from heterps.runtime.pace import Peers, Slow, drift
from heterps.runtime.prepare import Setup
from heterps.runtime.progress import Progress

_LOOK_EVERY_S = 5.0
_DRIFT_AFTER_S = 20.0  # of training


class Findings:
    """Of one generation; ``names`` are those of its workers. ``drifted`` is called once, when it is
    far from its prediction."""

    def __init__(
        self,
        setup: Setup,
        progress: Progress,
        names: Sequence[str],
        events: EventLog,
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        drifted: Callable[[], None] = lambda: None,
    ) -> None:
        self._predicted = setup.plan.throughput if setup.plan else None
        self._margin = setup.job.recovery.drift
        self._progress = progress
        self._names = names
        self._events = events
        self._notice = notice
        self._clock = clock
        self._stages = [Peers() for _ in setup.layout.stages]
        self._next_look = 0.0
        self._drifted = False
        self._diverged = False
        self._on_drift = drifted

    def hear(self, first: int, losses: Sequence[float]) -> None:
        """Losses of batches, of which ``first`` is the first."""
        lost = next((n for n, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if lost is None or self._diverged:
            return
        self._diverged = True
        step = first + lost + 1
        self._events.write("diverged", step=step)
        fix = "lower optimizer.lr and the lr of tables, or bound gradients with clip"
        self._notice(f"the loss of step {step:,} is not finite: {fix}")

    def look(self) -> None:
        """Every few seconds."""
        if self._clock() < self._next_look:
            return
        self._next_look = self._clock() + _LOOK_EVERY_S
        for stage, peers in enumerate(self._stages):
            for slow in peers.look(self._progress.work_of(stage)):
                self._tell_slow(slow)
        if not self._drifted and self._progress.counted_s > _DRIFT_AFTER_S:
            self._look_for_drift()

    def _tell_slow(self, slow: Slow) -> None:
        name = self._names[slow.worker]
        about = {"sample_s": slow.sample_s, "peers_sample_s": slow.peers_sample_s}
        self._events.write("slow_replica", process=name, times=slow.times, **about)
        self._notice(f"{name} takes {slow.times:.1f} times as long as its peers for a sample")

    def _look_for_drift(self) -> None:
        found = drift(self._progress.mean_samples_per_s, self._predicted, self._margin)
        if found is None:
            return
        self._drifted = True
        self._events.write("drift", step=self._progress.step, **found)
        measured = f"{found['measured']:,.0f} samples/s, {found['ratio']:.0%} of the prediction"
        self._notice(f"{measured}: planning again by what was seen")
        self._on_drift()
