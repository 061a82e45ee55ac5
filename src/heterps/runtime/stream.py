"""A folder that grows while a run goes on, arrival by arrival: each is an epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.data.dataset import all_grouped
from heterps.data.follow import (
    END,
    Arrival,
    Arrivals,
    check_unchanged,
    names_followed,
    next_arrival,
    only,
)
from heterps.data.lane_plan import LanePlan
from heterps.data.schema import SlotKind, check_kinds
from heterps.data.source import find_files, storage_of
from heterps.job.spec import Job
from heterps.runtime.snapshot import RunSnapshot

ARRIVALS = "arrivals.jsonl"
LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Stretch:
    """An arrival and the batches that it makes."""

    arrival: Arrival
    plan: LanePlan

    @property
    def end(self) -> int:
        """The first batch after it."""
        return self.plan.first_batch + self.plan.batches_per_epoch


class Stream:
    """What has arrived is written down in the run folder before it is used. ``like`` says how many
    lanes and micro-batches there are. ``ended`` once no more is to come."""

    def __init__(
        self,
        run: Path,
        job: Job,
        like: LanePlan,
        start: RunSnapshot | None = None,
        clock: Callable[[], float] = time.monotonic,
        kinds: Mapping[str, SlotKind] | None = None,
    ) -> None:
        """``kinds`` is what slots have held so far. Raises InputError where the run folder and the
        snapshot do not agree."""
        assert job.data is not None
        assert job.data.follow is not None
        self._data, self._base = job.data, job.folder
        self._idle_s = job.data.follow.idle_s
        self._most = math.ceil(job.workload.epochs)
        self._like = like
        self._clock = clock
        self._waits_since: float | None = None
        self._arrivals = Arrivals(run / ARRIVALS)
        if start is not None:
            self._arrivals.take_over(start.about.get("arrivals", ()))
        self._unchecked = set(range(len(self._arrivals)))  # recorded earlier, not read again yet
        self._stretches: list[Stretch] = []
        self.kinds = kinds or {}
        self.ended = False

    def at(self, step: int) -> Stretch | None:
        """What a batch belongs to: a recorded arrival, or what is in the folder now. None while
        there is nothing new. Raises InputError."""
        while len(self._stretches) < len(self._arrivals):
            self._add(self._arrivals[len(self._stretches)])
        for stretch in reversed(self._stretches):
            if stretch.plan.first_batch <= step < stretch.end:
                self._check(stretch.arrival)
                return stretch
        return self._look()

    def documents(self, step: int) -> list[dict[str, Any]]:
        """The arrivals that came before a batch, for a snapshot at that batch."""
        count = sum(stretch.plan.first_batch < step for stretch in self._stretches)
        return self._arrivals.documents(count)

    def _look(self) -> Stretch | None:
        if len(self._arrivals) >= self._most:
            self.ended = True
            return None
        names = names_followed(self._data, self._base)
        found = next_arrival(names, self._arrivals.taken)
        samples, versions = self._opened(found) if found else (0, [])
        if samples:
            self._waits_since = None
            return self._add(self._arrivals.record(found, samples, versions))
        now = self._clock()
        self._waits_since = now if self._waits_since is None else self._waits_since
        idle = self._idle_s is not None and now - self._waits_since >= self._idle_s
        self.ended = END in names or idle
        return None

    def _check(self, arrival: Arrival) -> None:
        """Once, of those that another run of this, or a generation before, has written down."""
        if arrival.number in self._unchecked:
            check_unchanged(self._data, arrival, self._base)
            self._unchecked.discard(arrival.number)

    def _opened(self, names: tuple[str, ...]) -> tuple[int, list[str]]:
        """How many samples they hold, and the version of each."""
        spec = only(self._data, names)
        files = find_files(spec.train, "data.train", self._base, storage_of(spec, self._base))
        opened = all_grouped(files)
        schemas = ((file.file.url, file.schema) for file in opened)
        self.kinds = check_kinds(schemas, spec, self.kinds)
        versions = {file.path.rpartition("/")[2]: file.version for file in files}
        return sum(sum(file.sizes) for file in opened), [versions[name] for name in names]

    def _add(self, arrival: Arrival) -> Stretch:
        before = self._stretches[-1].plan if self._stretches else None
        if before is None:
            like = self._like
            plan = LanePlan(arrival.samples, like.lanes, like.micro_batch_size, like.micro_batches)
        else:
            plan = before.then(arrival.samples)
        self._stretches.append(Stretch(arrival, plan))
        return self._stretches[-1]
