"""A whole training run: segments of batches, validation between them, the model at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heterps.events import EventLog
from heterps.job.load import load_job
from heterps.job.spec import Job
from heterps.planning.plan import Plan
from heterps.runtime.building import validation_batches
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.engines.base import Engine
from heterps.runtime.engines.local import LocalEngine
from heterps.runtime.metrics import Counts, counts_for, is_better, unpack_counts
from heterps.runtime.prepare import Setup, prepare
from heterps.runtime.progress import Progress, Status
from heterps.runtime.run_folder import BEST, MODEL, RunFolder
from heterps.runtime.warm_start import read_warm_start

_AHEAD_S = 2.0  # how much work the workers know of
_AHEAD_BATCHES = 8
_EVENT_EVERY_S = 1.0

Report = Callable[[Status], None]


@dataclass(frozen=True)
class TrainResult:
    """What came of a run. ``metrics`` are those of the last validation, or progressive ones where
    there is none; ``samples_per_s`` is measured from the end of the first batch."""

    folder: Path
    steps: int
    samples: int
    seconds: float
    samples_per_s: float
    loss: float
    metrics: Mapping[str, float]
    best: Mapping[str, float] | None
    dollars: float
    predicted_samples_per_s: float | None
    stopped_early: bool

    def as_document(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def train(
    job: Job | Path | str,
    plan: Mapping[str, Any] | Plan | None = None,
    out: Path | str | None = None,
    progress: Report = lambda status: None,
    *,
    method: str = "auto",
) -> TrainResult:
    """Trains a job, or the job in a file, and gives what came of it.

    ``plan`` counts before the job's own; without both, ``method`` finds one from cluster and
    profile. The run folder is ``out``, by default a new one under ``runs``; ``progress`` is called
    about once a second. Raises InputError before anything is started, and ProcessError when a
    process fails; none is left running.
    """
    job = job if isinstance(job, Job) else load_job(Path(job))
    document = plan.as_document() if isinstance(plan, Plan) else plan
    setup = prepare(job, document, method)
    with RunFolder.create(out, setup.job, setup.plan_document()) as folder:
        return train_run(setup, folder, progress)


def train_run(
    setup: Setup,
    folder: RunFolder,
    report: Report = lambda status: None,
    engine: Engine | None = None,
) -> TrainResult:
    """Trains and leaves everything in the folder. Raises what ended it; no process is left."""
    engine = engine or LocalEngine(folder.path)
    with folder.events() as events:
        events.write("started", steps=setup.layout.batches, workers=len(setup.layout.workers))
        training = Training(setup, folder, engine, events, report)
        try:
            result = training.run()
        except KeyboardInterrupt:
            events.write("interrupted", step=training.progress.step)
            raise
        except Exception as error:
            events.write("failed", error=str(error), step=training.progress.step)
            raise
        folder.finish(result.as_document())
        events.write("ended", **result.as_document())
    return result


class Training:
    """One run from its first batch to its last."""

    def __init__(
        self, setup: Setup, folder: RunFolder, engine: Engine, events: EventLog, report: Report
    ) -> None:
        self._setup = setup
        self._layout = setup.layout
        self._folder = folder
        self._events = events
        self._report = report
        job = setup.job
        self.progress = Progress(setup.layout, setup.task, job.validation.k, setup.dollars_per_hour)
        self._coordinator = Coordinator(setup, folder, engine, self.progress.heard)
        self._reported_at = 0.0
        self._validated: Counts | None = None
        self._best: dict[str, float] | None = None
        self._worse = 0

    def run(self) -> TrainResult:
        began = time.monotonic()
        with self._coordinator as coordinator:
            coordinator.start()
            self._warm_start()
            self._events.write("ready", seconds=round(time.monotonic() - began, 3))
            stopped = self._train_all()
            coordinator.save(MODEL, {"step": self.progress.step, "metrics": self._metrics()})
        return self._result(stopped)

    def _train_all(self) -> bool:
        """Whether it stopped early."""
        first = 0
        for end in self._segments():
            self._segment(first, end)
            first = end
            if self._layout.validation is not None and self._validate():
                return end < self._layout.batches
        return False

    def _segments(self) -> Iterator[int]:
        """Where validation is due: the ends of segments."""
        every = self._setup.job.validation.every or self._layout.train.batches_per_epoch
        yield from range(every, self._layout.batches, every)
        yield self._layout.batches

    def _segment(self, first: int, end: int) -> None:
        """Trains batches up to ``end``; workers are told of some seconds' work at a time, so that
        a segment can be cut short."""
        self.progress.begin(first)
        known = self._known(first, end)
        said = {"first": first, "end": known, "closed": known == end}
        self._coordinator.tell_all("train", said)
        waiting = set(range(len(self._layout.workers)))
        while waiting:
            for message in self._coordinator.receive(0.1):
                assert message.kind == "trained", message.kind
                waiting.discard(message.sender)
            more = self._known(self.progress.committed + 1, end)
            if more > known and (more == end or more - known >= _AHEAD_BATCHES // 2):
                known = more
                said = {"end": known, "closed": known == end}
                self._coordinator.tell_all("more", said)
            self._say()
        self._say(force=True)
        self._await_commit(end)

    def _known(self, reached: int, end: int) -> int:
        pace = self.progress.batches_per_s
        ahead = 0 if math.isnan(pace) else math.ceil(pace * _AHEAD_S)
        least = _AHEAD_BATCHES + 2 * self._layout.staleness
        return min(end, max(reached, 0) + max(least, ahead))

    def _await_commit(self, end: int) -> None:
        """Until the tables have all that was sent to them."""
        for name in self._setup.chain.tables:
            table = self._coordinator.client.table(name)
            deadline = time.monotonic() + 60.0
            while table.committed < end - 1 and time.monotonic() < deadline:
                time.sleep(0.005)
            assert table.committed == end - 1, f"{name}: {table.committed} of {end - 1}"

    def _validate(self) -> bool:
        """Whether it is time to stop: no improvement for long enough."""
        plan, own = self._layout.validation, self._setup.job.validation
        assert plan is not None
        end = validation_batches(plan, own.max_batches)
        began = time.monotonic()
        self._coordinator.tell_all("validate", {"end": end})
        answers = self._coordinator.gather("validated")
        total = counts_for(self._setup.task, own.k)
        for answer in answers.values():
            total.merge(unpack_counts(answer.fields["counts"]))
        self._validated = total
        values, metric = total.values(), self._setup.metric
        seconds = round(time.monotonic() - began, 3)
        better = is_better(metric, values[metric], self._best[metric] if self._best else None)
        step = self.progress.step
        self._events.write("validated", step=step, metrics=values, better=better, seconds=seconds)
        if better:
            self._best, self._worse = values, 0
            self._keep_best(step, values)
        else:
            self._worse += 1
        self._report(self.progress.status())
        return own.patience is not None and self._worse >= own.patience

    def _keep_best(self, step: int, values: dict[str, float]) -> None:
        self._coordinator.save(BEST, {"step": step, "metrics": values})

    def _warm_start(self) -> None:
        own = self._setup.chain
        found = read_warm_start(self._setup.job, own.state_dict(), own.tables)
        if found is None:
            return
        self._coordinator.load(found.weights)
        if found.tables is not None:
            client = self._coordinator.client
            client.load(found.tables, list(own.tables))
            for name in own.tables:
                client.table(name).committed = -1

    def _say(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now < self._reported_at + _EVENT_EVERY_S:
            return
        self._reported_at = now
        status = self.progress.status()
        first, losses = self.progress.take_losses()
        fields = asdict(status)
        self._events.write(
            "progress", **fields, first=first, losses=losses, stages=self.progress.figures()
        )
        self._report(status)

    def _metrics(self) -> dict[str, float]:
        if self._validated is not None:
            return self._validated.values()
        return dict(self.progress.status().metrics)

    def _result(self, stopped: bool) -> TrainResult:
        status = self.progress.status()
        plan = self._setup.plan
        return TrainResult(
            self._folder.path,
            status.step,
            status.samples,
            status.seconds,
            self.progress.mean_samples_per_s,
            status.loss,
            self._metrics(),
            self._best,
            status.dollars,
            plan.throughput if plan else None,
            stopped,
        )
