"""One generation of a run: its processes from their start to the end of the training, or to the
first failure. Segments of batches, validation and snapshots between them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heterps.events import EventLog
from heterps.runtime.building import validation_batches
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.engines.base import Engine
from heterps.runtime.failure import patience_s
from heterps.runtime.metrics import counts_for, is_better, unpack_counts
from heterps.runtime.prepare import Setup
from heterps.runtime.progress import Progress, Status
from heterps.runtime.run_folder import BEST, MODEL, RunFolder
from heterps.runtime.snapshot import RunSnapshot, Snapshots, Writer
from heterps.runtime.warm_start import read_warm_start

_AHEAD_S = 2.0  # how much work the workers know of
_AHEAD_BATCHES = 8
_EVENT_EVERY_S = 1.0
_COMMIT_S = 60.0

Report = Callable[[Status], None]


class StoppedError(Exception):
    """The person has asked for the end; a snapshot was taken."""


class Stop:
    """How a person ends a run: asked once, it ends with a snapshot, at the next chance; asked
    twice, or before the training has begun, at once."""

    def __init__(self) -> None:
        self.armed = False
        self.asked = False

    def ask(self, *_: object) -> None:
        """Fit for a signal handler."""
        if not self.armed or self.asked:
            raise KeyboardInterrupt
        self.asked = True


@dataclass
class Standing:
    """What a run has come to, beside its weights: goes from generation to generation."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] | None = None  # of the last validation
    best: dict[str, float] | None = None
    worse: int = 0  # validations since the best one
    stopped_early: bool = False


class Generation:
    """``number`` tells its processes from those of earlier ones, ``start`` is where it goes on."""

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        engine: Engine,
        events: EventLog,
        report: Report,
        *,
        number: int = 0,
        start: RunSnapshot | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._setup = setup
        self._layout = setup.layout
        self._events = events
        self._report = report
        self._start = start
        self._stop = stop or Stop()
        self.standing = Standing(**(start.about["standing"] if start else {}))
        before = self.standing
        self.progress = Progress(
            setup.layout,
            setup.task,
            setup.job.validation.k,
            setup.dollars_per_hour,
            first=before.step,
            samples=before.samples,
            seconds=before.seconds,
        )
        self._coordinator = Coordinator(
            setup, folder, engine, self.progress.heard, generation=number
        )
        self._snapshots = Snapshots(folder.path, setup.job.snapshot.keep)
        self._writer = Writer(self._written)
        self._snapshot_at = time.monotonic()
        self._reported_at = 0.0
        predicted = setup.plan.throughput if setup.plan else None
        batch_s = setup.job.workload.batch_size / predicted if predicted else None
        self._patience_s = patience_s(batch_s)

    def run(self) -> None:
        """To the end of the training; the model is then in the run folder."""
        began = time.monotonic()
        with self._coordinator as coordinator:
            try:
                coordinator.start()
                self._restore()
                seconds = round(time.monotonic() - began, 3)
                self._events.write("ready", step=self.standing.step, seconds=seconds)
                self._stop.armed = True
                self._train()
            finally:
                self._writer.finish()
            about = {"step": self.standing.step, "metrics": self.metrics()}
            coordinator.save(MODEL, about)

    def metrics(self) -> dict[str, float]:
        """Of the last validation, or progressive ones where there is none."""
        return self.standing.metrics or dict(self.progress.status().metrics)

    def _restore(self) -> None:
        """Where this generation begins: a snapshot, another run's model, or the first weights."""
        client, tables = self._coordinator.client, list(self._setup.chain.tables)
        if self._start is not None:
            client.load(self._start.tables)
            self._coordinator.load(self._start.state())
            return
        own = self._setup.chain
        found = read_warm_start(self._setup.job, own.state_dict(), own.tables)
        if found is None:
            return
        self._coordinator.load(found.weights)
        if found.tables is not None:
            client.load(found.tables, tables)
            for name in tables:
                client.table(name).committed = -1

    def _train(self) -> None:
        while self.standing.step < self._layout.batches and not self.standing.stopped_early:
            end = self._boundary(self.standing.step)
            self.standing.step = reached = self._segment(self.standing.step, end)
            self.standing.samples = self.progress.samples
            self.standing.seconds = self.progress.seconds
            due = reached in (self._next_validation(reached - 1), self._layout.batches)
            if self._layout.validation is not None and due:
                self._validate()
            if self._stop.asked and reached < self._layout.batches:
                self._snapshot()
                self._writer.finish()
                raise StoppedError
            if self._snapshot_due(reached):
                self._snapshot()

    def _boundary(self, first: int) -> int:
        """Where the next segment ends, unless it is cut short."""
        every = self._setup.job.snapshot.every
        ends = [self._next_validation(first), self._layout.batches]
        return min([*ends, *([(first // every + 1) * every] if every else [])])

    def _next_validation(self, first: int) -> int:
        every = self._setup.job.validation.every or self._layout.train.batches_per_epoch
        return (first // every + 1) * every

    def _snapshot_due(self, reached: int) -> bool:
        own = self._setup.job.snapshot
        by_step = own.every is not None and reached % own.every == 0
        return reached < self._layout.batches and (by_step or self._snapshot_late())

    def _snapshot_late(self) -> bool:
        every_s = self._setup.job.snapshot.every_s
        return every_s > 0 and time.monotonic() - self._snapshot_at >= every_s

    def _segment(self, first: int, end: int) -> int:
        """Trains batches up to ``end``, or to where it was cut short, which it gives. Workers are
        told of some seconds' work at a time: that much is always done."""
        self.progress.begin(first)
        self._coordinator.begin_work()
        known = self._known(first, end)
        said = {"first": first, "end": known, "closed": known == end}
        self._coordinator.tell_all("train", said)
        waiting = set(range(len(self._layout.workers)))
        while waiting:
            for message in self._coordinator.receive(0.1):
                assert message.kind == "trained", message.kind
                waiting.discard(message.sender)
            if known < end and (self._stop.asked or self._snapshot_late()):
                end = known
                self._coordinator.tell_all("more", {"end": end, "closed": True})
            more = self._known(self.progress.committed + 1, end)
            if more > known and (more == end or more - known >= _AHEAD_BATCHES // 2):
                known = more
                self._coordinator.tell_all("more", {"end": known, "closed": known == end})
            self._coordinator.expect_progress(self._patience_s)
            self._say()
        self._say(force=True)
        self._await_commit(end)
        return end

    def _known(self, reached: int, end: int) -> int:
        pace = self.progress.batches_per_s
        ahead = 0 if math.isnan(pace) else math.ceil(pace * _AHEAD_S)
        least = _AHEAD_BATCHES + 2 * self._layout.staleness
        return min(end, max(reached, 0) + max(least, ahead))

    def _await_commit(self, end: int) -> None:
        """Until the tables have all that was sent to them."""
        for name in self._setup.chain.tables:
            table = self._coordinator.client.table(name)
            deadline = time.monotonic() + _COMMIT_S
            while table.committed < end - 1 and time.monotonic() < deadline:
                self._coordinator.receive(0.005)
            assert table.committed == end - 1, f"{name}: {table.committed} of {end - 1}"

    def _validate(self) -> None:
        plan, own = self._layout.validation, self._setup.job.validation
        assert plan is not None
        began = time.monotonic()
        self._coordinator.tell_all("validate", {"end": validation_batches(plan, own.max_batches)})
        total = counts_for(self._setup.task, own.k)
        for answer in self._coordinator.gather("validated").values():
            total.merge(unpack_counts(answer.fields["counts"]))
        values, seconds = total.values(), round(time.monotonic() - began, 3)
        better = self._judge(values)
        step = self.standing.step
        self._events.write("validated", step=step, metrics=values, better=better, seconds=seconds)
        if better:
            self._coordinator.save(BEST, {"step": step, "metrics": values})
        self._report(self.progress.status())

    def _judge(self, values: dict[str, float]) -> bool:
        """Whether this is the best so far; stops the run when that was too long ago."""
        standing, metric = self.standing, self._setup.metric
        standing.metrics = values
        before = standing.best[metric] if standing.best else None
        if is_better(metric, values[metric], before):
            standing.best, standing.worse = values, 0
            return True
        standing.worse += 1
        patience = self._setup.job.validation.patience
        early = patience is not None and standing.worse >= patience
        standing.stopped_early = early and standing.step < self._layout.batches
        return False

    def _snapshot(self) -> None:
        """Training goes on as soon as every process holds on to what it has."""
        began = time.monotonic()
        self._writer.finish()
        step, coordinator = self.standing.step, self._coordinator
        state = coordinator.state()
        coordinator.client.capture()
        plan = self._layout.train
        about = {
            "standing": asdict(self.standing),
            "lanes": plan.lanes,
            "cursors": list(plan.cursors(plan.batch(step).first)),
            "seed": self._setup.job.seed,
        }
        self._snapshot_at = time.monotonic()
        stall = self._snapshot_at - began

        def write() -> Mapping[str, Any]:
            written = time.monotonic()
            path = self._snapshots.write(step, state, about, coordinator.client.save)
            seconds = time.monotonic() - written
            return {"step": step, "path": str(path), "stall_s": stall, "seconds": seconds}

        self._writer.start(write)

    def _written(self, about: Mapping[str, Any]) -> None:
        self._events.write("snapshot_failed" if "error" in about else "snapshot", **about)

    def _say(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now < self._reported_at + _EVENT_EVERY_S:
            return
        self._reported_at = now
        status = self.progress.status()
        first, losses = self.progress.take_losses()
        figures = self.progress.figures()
        self._events.write("progress", **asdict(status), first=first, losses=losses, stages=figures)
        self._report(status)
