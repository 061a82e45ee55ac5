"""One generation of a run: its processes from their start to the end of the training, or to the
first failure. Segments of batches, validation and snapshots between them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from heterps.errors import SnapshotError
from heterps.events import EventLog
from heterps.runtime.beginning import restore, warm_start
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.course import Course
from heterps.runtime.elastic import Elastic, ReplanError, figures, shown, told
from heterps.runtime.engines.base import Engine
from heterps.runtime.failure import patience_s
from heterps.runtime.findings import Findings
from heterps.runtime.prepare import Setup
from heterps.runtime.progress import LEAST_AHEAD, Progress
from heterps.runtime.reporter import Notice, Report, Reporter
from heterps.runtime.run_folder import BEST, MODEL, RunFolder
from heterps.runtime.server_group import await_commit
from heterps.runtime.slots import kinds_in, slots_document
from heterps.runtime.snapshot import RECENT, RunSnapshot
from heterps.runtime.snapshot_taker import SnapshotTaker
from heterps.runtime.standing import Standing
from heterps.runtime.stop import Stop, StoppedError
from heterps.runtime.stream import LOOK_EVERY_S, Stream, Stretch
from heterps.runtime.validations import Validations


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
        seconds: float | None = None,
        stop: Stop | None = None,
        notice: Notice = lambda line: None,
        elastic: Elastic | None = None,
    ) -> None:
        """``seconds`` the run has taken so far, more than its snapshot knows of."""
        self._setup = setup
        self._course = Course(setup.job, setup.layout)
        self._events = events
        self._report = report
        self._notice = notice
        self._elastic = elastic
        self._started_s = 0.0  # what it took to start
        self._stopping = False
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
            seconds=before.seconds if seconds is None else seconds,
        )
        self._coordinator = Coordinator(
            setup, folder, engine, self.progress.heard, generation=number
        )
        names = self._coordinator.names
        drifted = elastic.drifted if elastic is not None else lambda: None
        findings = Findings(setup, self.progress, names, events, notice, drifted=drifted)
        self._reporter = Reporter(self.progress, findings, events, report, notice)
        self.snapshots = SnapshotTaker(
            setup, folder.path, self._coordinator, self._reporter.snapshot, start
        )
        self._stream = _stream_of(setup, folder, start)
        self._taken: int | None = None  # the step of the last snapshot
        predicted = setup.plan.throughput if setup.plan else None
        batch_s = setup.job.workload.batch_size / predicted if predicted else None
        self._patience_s = patience_s(batch_s)
        self._validations = Validations(
            setup, self._coordinator, before, events, notice, self._patience_s
        )

    def run(self) -> None:
        """To the end of the training; the model is then in the run folder."""
        began = time.monotonic()
        try:
            with self._coordinator as coordinator:
                coordinator.start()
                self._restore()
                self._started_s = round(time.monotonic() - began, 3)
                self._events.write("ready", step=self.standing.step, seconds=self._started_s)
                self._stop.armed = True
                self._train()
                self.snapshots.finish()
                about = {"step": self.standing.step, "metrics": self.metrics()}
                coordinator.save(MODEL, {**about, **self._slots()})
        finally:
            self.snapshots.abandon()

    @property
    def saved_step(self) -> int:
        """Of the snapshot that it would go on from."""
        return self.snapshots.last_written or (self._start.step if self._start else 0)

    @property
    def noticed_at(self) -> float:
        """When its failure was noticed; its processes have been ended since."""
        return self._coordinator.noticed_at or time.time()

    def metrics(self) -> dict[str, float]:
        """Of the last validation, or progressive ones where there is none."""
        return self.standing.metrics or dict(self.progress.status().metrics)

    def _restore(self) -> None:
        """Where this generation begins."""
        if self._start is None:
            warm_start(self._setup, self._coordinator)
        else:
            recent = restore(self._setup, self._coordinator, self._start)
            self.progress.go_on_from(recent)

    def _train(self) -> None:
        self.snapshots.begin()
        while self._has_work():
            end = self._course.segment_end(self.standing.step)
            self.standing.step = reached = self._segment(self.standing.step, end)
            self.standing.samples = self.progress.samples
            self.standing.seconds = self.progress.seconds
            if self._course.validation_is_due(reached):
                self._validate()
            if self.standing.stopped_early or self._course.is_last(reached):
                return
            self._between_segments(due=self.snapshots.due(reached))

    def _between_segments(self, *, due: bool) -> None:
        if self._stop.asked:
            self._take_snapshot()
            self.snapshots.finish()
            raise StoppedError
        if self._units_are_lost or due:
            self._take_snapshot()
            self._replan_if_it_pays()

    def _has_work(self) -> bool:
        """Whether there is another batch; waits for what is to arrive."""
        stream, step = self._stream, self.standing.step
        if stream is None or step < self._course.layout.batches:
            return True
        waits = False
        while True:
            found = self._coordinator.while_watching(lambda: stream.at(step))
            if found is not None:
                self._begin(found)
                return True
            if stream.ended:
                return False
            if not waits:
                self._events.write("waiting", step=step)
            waits = True
            self._wait()

    def _begin(self, stretch: Stretch) -> None:
        """With another arrival."""
        layout = replace(self._course.layout, train=stretch.plan, batches=stretch.end)
        self._course = replace(self._course, layout=layout)
        self.progress.layout = layout
        arrival = stretch.arrival
        about = {"arrival": arrival.number, "files": len(arrival.names), "samples": arrival.samples}
        self._events.write("arrival", step=self.standing.step, **about)
        self._coordinator.follow(layout, arrival.names)

    def _wait(self) -> None:
        """A moment, for something to arrive."""
        until = time.monotonic() + LOOK_EVERY_S
        while time.monotonic() < until and not self._stop.asked:
            self._coordinator.receive(0.1)
        self._look_for_stop()
        if self._elastic is not None:
            self._elastic.look()
        self.snapshots.hear()
        self._between_segments(due=self.snapshots.late and self._taken != self.standing.step)

    def _take_snapshot(self) -> None:
        self._taken = step = self.standing.step
        arrivals = {"arrivals": self._stream.documents(step)} if self._stream else {}
        about_data = {**arrivals, **self._slots()}
        self.snapshots.take(self.standing, {RECENT: self.progress.recent()}, about_data)

    def _slots(self) -> dict[str, Any]:
        """For a manifest."""
        return slots_document(self._stream.kinds if self._stream else self._setup.kinds)

    @property
    def _units_are_lost(self) -> bool:
        return self._elastic is not None and self._elastic.units_are_lost

    def _replan_if_it_pays(self) -> None:
        """After a snapshot: raises ReplanError for a plan that is better, or for any plan when the
        present one has lost units; and what there is no plan for."""
        found, step = self._elastic, self.standing.step
        if found is None or (found.proposal is None and found.error is None):
            return
        self.snapshots.finish()
        if found.error is not None:
            raise found.error
        proposal = found.proposal
        assert proposal is not None
        samples = self._course.samples_left(self.standing.samples)
        estimate = found.estimate(samples, self._started_s)
        pays = estimate is None or estimate.pays
        about = {"limits": dict(proposal.limits), "reason": proposal.reason, **figures(estimate)}
        if not proposal.urgent and not pays:
            found.proposal = None
            self._events.write("plan_kept", step=step, **about)
            self._notice(f"the plan stays for {shown(proposal.limits)}: {told(estimate)}")
        elif proposal.urgent or self.snapshots.last_written == step:
            raise ReplanError(proposal, estimate)

    def _segment(self, first: int, end: int) -> int:
        """Trains batches up to ``end``, or to where it was cut short, which it gives. Workers are
        told of some seconds' work at a time: that much is always done."""
        self.progress.begin(first)
        self._coordinator.begin_work()
        known = self._known(first, end)
        said = {"first": first, "end": known, "closed": known == end}
        self._coordinator.tell_all("train", said)
        waiting = set(range(len(self._course.layout.workers)))
        while waiting:
            for message in self._coordinator.receive(0.1):
                assert message.kind == "trained", message.kind
                waiting.discard(message.sender)
            if self._elastic is not None:
                self._elastic.look()
            self._look_for_stop()
            cut = self._stop.asked or self.snapshots.late or self._units_are_lost
            if known < end and cut:
                end = known
                self._coordinator.tell_all("more", {"end": end, "closed": True})
            more = self._known(self.progress.committed + 1, end)
            if more > known and (more == end or more - known >= LEAST_AHEAD // 2):
                known = more
                self._coordinator.tell_all("more", {"end": known, "closed": known == end})
            self._coordinator.expect_progress(self._patience_s)
            self.snapshots.hear()
            self._reporter.say()
        self._reporter.say(force=True)
        self._await_commit(end)
        return end

    def _look_for_stop(self) -> None:
        if self._stop.asked and not self._stopping:
            self._stopping = True
            self._notice("stopping with a snapshot in a moment; a second Ctrl-C stops at once")
            self._events.write("stopping", step=self.progress.step)

    def _known(self, reached: int, end: int) -> int:
        return min(end, reached + self.progress.batches_ahead)

    def _await_commit(self, end: int) -> None:
        """Until the tables have all that was sent to them."""
        client = self._coordinator.client
        for name in self._setup.chain.tables:
            self._coordinator.while_watching(partial(await_commit, client, name, end - 1))

    def _validate(self) -> None:
        plan, step = self._course.layout.validation, self.standing.step
        assert plan is not None
        found = self._validations.validate(plan, last=self._course.is_last(step))
        if found.better:
            self._save_best({"step": step, "metrics": found.metrics})
        self.progress.validation = found
        self._report(self.progress.status())

    def _save_best(self, about: Mapping[str, Any]) -> None:
        self.snapshots.finish()  # servers write one thing at a time
        try:
            self._coordinator.save(BEST, {**about, **self._slots()})
        except (SnapshotError, OSError) as error:
            self._events.write("best_failed", step=self.standing.step, error=str(error))
            self._notice(f"the best model was not written, training goes on: {error}")


def _stream_of(setup: Setup, folder: RunFolder, start: RunSnapshot | None) -> Stream | None:
    if not setup.job.follows:
        return None
    kinds = {**(kinds_in(start.about, "the run") if start else {}), **setup.kinds}
    return Stream(folder.path, setup.job, setup.layout.train, start, kinds=kinds)
