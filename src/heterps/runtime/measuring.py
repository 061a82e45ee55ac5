"""Plans run for a few seconds each on the real engine: what they cost in fact."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heterps.errors import InputError, ProcessError
from heterps.job.spec import Job
from heterps.planning.measured import MeasuredStage
from heterps.planning.plan import Plan
from heterps.planning.policy.measured import MeasuredSearch, Round
from heterps.planning.problem import Problem
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.engines import MakeEngine, engines_of
from heterps.runtime.prepare import Setup, check_device, prepare
from heterps.runtime.profiling.trial import bare
from heterps.runtime.progress import LEAST_AHEAD, Progress
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.stop import StoppedError

_EPOCHS = 1e6  # the data is used again and again
_LEAST_BATCHES = 4  # after the first ones, which warm up
_TURNS = 2  # of those that may be the best
_PATIENCE_S = 300.0  # until as many batches as that are done

Stop = Callable[[], bool]
Told = Callable[[int, Plan, Round | str | None], None]


@dataclass(frozen=True)
class Measurement:
    """Of a short run, once its workers were warm; ``seconds`` of it."""

    samples_per_s: float
    stages: tuple[MeasuredStage | None, ...]
    seconds: float


class Measurer:
    """Runs plans of a job for ``seconds`` each; nothing is kept of a run, and the job's validation,
    snapshots and earlier models do not count. Raises InputError for types that this machine does
    not have."""

    def __init__(self, job: Job, seconds: float, make_engine: MakeEngine) -> None:
        if job.model is None or job.data is None:
            part = "model" if job.model is None else "data"
            raise InputError(part, "is missing: a plan can be measured only of a job that can run")
        for entry in job.cluster.types:
            if entry.limit > 0 and job.engine == "local":
                check_device(entry)
        self._job = _lasting(job)
        self._seconds = seconds
        self._make_engine = make_engine

    def run(self, plan: Plan, stop: Stop = lambda: False) -> Measurement | None:
        """None when it was stopped before it could tell anything. Raises what a run raises."""
        setup = prepare(self._job, plan.as_document())
        with (
            tempfile.TemporaryDirectory(prefix="heterps-measure-") as path,
            RunFolder.create(Path(path) / "run", setup.job, setup.plan_document()) as folder,
        ):
            return self._watch(setup, folder, stop)

    def _watch(self, setup: Setup, folder: RunFolder, stop: Stop) -> Measurement | None:
        progress = Progress(setup.layout, setup.task, setup.job.validation.k, 0.0)
        engine = self._make_engine(folder.path)
        coordinator = Coordinator(setup, folder, engine, progress.heard, stop=stop)
        try:
            coordinator.start()
            self._measure(coordinator, progress)
        except StoppedError:
            return None
        finally:
            coordinator.close(
                failed=True
            )  # nothing of the run is kept: there is no order to end in
        return _measurement(progress)

    def _measure(self, coordinator: Coordinator, progress: Progress) -> None:
        coordinator.begin_work()
        known = progress.committed + 1 + progress.batches_ahead
        coordinator.tell_all("train", {"first": 0, "end": known, "closed": False})
        deadline = time.monotonic() + _PATIENCE_S + self._seconds
        while not self._has_enough(progress):
            coordinator.receive(0.1)
            more = progress.committed + 1 + progress.batches_ahead
            if more >= known + LEAST_AHEAD // 2:
                known = more
                coordinator.tell_all("more", {"end": known, "closed": False})
            if time.monotonic() > deadline:
                done = f"{progress.step} batches in {_PATIENCE_S + self._seconds:.0f} s"
                raise ProcessError("the run", f"did {done}: nothing was measured", "stuck")

    def _has_enough(self, progress: Progress) -> bool:
        stages = progress.measured()
        if not progress.warm or None in stages:
            return False
        found = [stage for stage in stages if stage is not None]
        batches = min(stage.batches for stage in found)
        seconds = min(stage.batches * stage.batch_s for stage in found)
        return batches >= _LEAST_BATCHES and seconds >= self._seconds


def measure_plans(
    job: Job,
    problem: Problem,
    rounds: int,
    seconds: float,
    *,
    told: Told = lambda number, plan, found: None,
    stop: Stop = lambda: False,
    make_engine: MakeEngine | None = None,
    search: MeasuredSearch | None = None,
) -> MeasuredSearch:
    """Up to ``rounds`` plans, each run for ``seconds``; then those that may be the best run again,
    in turns, since one short run is not much to go by. ``told`` hears of every run twice: with None
    before it, and after it with what was found, or why nothing was. After ``stop`` the run under
    way ends at once. Raises InputError before anything is run, InfeasibleError where there
    is no plan, and what a run raises if the first one fails."""
    search = search or MeasuredSearch(problem, seed=job.seed, stop=stop)
    with engines_of(job, make_engine) as make:
        _measure(Measurer(job, seconds, make), search, rounds, told, stop)
    return search


def _measure(
    measurer: Measurer,
    search: MeasuredSearch,
    rounds: int,
    told: Told,
    stop: Stop,
) -> None:
    for number in range(rounds):
        plan = None if stop() else search.propose()
        if plan is None:
            break
        told(number, plan, None)
        try:
            found = measurer.run(plan, stop)
        except ProcessError as error:
            if not search.rounds:
                raise
            search.failed(plan)
            told(number, plan, str(error))
            continue
        if found is None:
            break
        told(number, plan, search.measured(plan, found.samples_per_s, found.stages))
    _run_again(measurer, search, told, stop)


def _run_again(measurer: Measurer, search: MeasuredSearch, told: Told, stop: Stop) -> None:
    contenders = search.contenders()
    numbers = {id(entry.plan): number for number, entry in enumerate(search.rounds)}
    for plan in contenders * _TURNS:
        number = numbers[id(plan)]
        if stop():
            return
        told(number, plan, None)
        try:
            found = measurer.run(plan, stop)
        except ProcessError as error:
            told(number, plan, str(error))
            continue
        if found is not None:
            told(number, plan, search.measured_again(plan, found.samples_per_s))


def _lasting(job: Job) -> Job:
    """With nothing but training in it, for as long as it takes."""
    return bare(job).model_copy(
        update={"workload": job.workload.model_copy(update={"epochs": _EPOCHS})}
    )


def _measurement(progress: Progress) -> Measurement:
    stages = progress.measured()
    last = stages[-1]
    assert last is not None
    samples = progress.samples / progress.step  # of a batch: the last one of an epoch is smaller
    return Measurement(samples / last.batch_s, tuple(stages), last.batches * last.batch_s)
