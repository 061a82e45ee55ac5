"""The validations of a run while it trains, and what is made of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from heterps.data.lane_plan import LanePlan
from heterps.events import EventLog
from heterps.runtime.building import validation_batches
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.metrics import Counts, counts_for, is_better, unpack_counts
from heterps.runtime.prepare import Setup
from heterps.runtime.progress import Validation
from heterps.runtime.standing import Standing


class Judge:
    """Keeps in ``standing`` which validation is the best so far, and whether that was too long
    ago."""

    def __init__(
        self,
        metric: str,
        patience: int | None,
        standing: Standing,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._metric = metric
        self._patience = patience
        self._standing = standing
        self._notice = notice
        self._unmeasured = False

    def judge(self, counts: Counts, values: dict[str, float], *, last: bool) -> bool:
        """Whether this is the best so far; stops the run when that was too long ago, unless it is
        the ``last`` one anyway."""
        standing, metric = self._standing, self._metric
        standing.metrics = values
        before = standing.best[metric] if standing.best else None
        if math.isnan(values[metric]):
            if not self._unmeasured:
                none = f"validation at step {standing.step} has no {metric} ({counts.missing})"
                self._notice(f"{none}: it counts neither for the best model nor for patience")
            self._unmeasured = True
            return False
        if is_better(metric, values[metric], before):
            standing.best, standing.worse = values, 0
            return True
        standing.worse += 1
        early = self._patience is not None and standing.worse >= self._patience
        standing.stopped_early = early and not last
        return False


class Validations:
    """Of one generation, which is taken to make no progress after ``patience_s`` without any."""

    def __init__(
        self,
        setup: Setup,
        coordinator: Coordinator,
        standing: Standing,
        events: EventLog,
        notice: Callable[[str], None],
        patience_s: float,
    ) -> None:
        self._setup = setup
        self._own = setup.job.validation
        self._coordinator = coordinator
        self._standing = standing
        self._events = events
        self._patience_s = patience_s
        self._judge = Judge(setup.metric, self._own.patience, standing, notice)

    def validate(self, plan: LanePlan, *, last: bool) -> Validation:
        """With the weights as they are now."""
        began = time.monotonic()
        total = self._count(plan)
        values, seconds = total.values(), round(time.monotonic() - began, 3)
        better = self._judge.judge(total, values, last=last)
        step = self._standing.step
        self._events.write("validated", step=step, metrics=values, better=better, seconds=seconds)
        return Validation(step, values, better)

    def _count(self, plan: LanePlan) -> Counts:
        end = validation_batches(plan, self._own.max_batches)
        self._coordinator.begin_work()
        self._coordinator.tell_all("validate", {"end": end})
        total = counts_for(self._setup.task, self._own.k)
        found = self._coordinator.gather("validated", progress_s=self._patience_s)
        for answer in found.values():
            total.merge(unpack_counts(answer.fields["counts"]))
        return total
