"""A whole training run: its generations, what is done about failures, and what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from heterps.errors import (
    HeterPSError,
    InputError,
    NoRoomError,
    ProcessError,
    ServerError,
    WorkerLostError,
)
from heterps.events import EventLog
from heterps.job.load import load_job
from heterps.job.spec import Job
from heterps.planning.measured import StageCheck, check_stages
from heterps.planning.plan import Plan
from heterps.planning.simulate import simulate
from heterps.runtime.beginning import DamagedStartError
from heterps.runtime.elastic import Elastic, Proposal, ReplanError, figures, shown
from heterps.runtime.emulation import Demand
from heterps.runtime.engines import MakeEngine, engines_of
from heterps.runtime.engines.base import Engine
from heterps.runtime.failure import Failure, Kind, decide
from heterps.runtime.generation import Generation
from heterps.runtime.layout import StageLayout
from heterps.runtime.prepare import Setup, prepare
from heterps.runtime.reporter import Notice, Report
from heterps.runtime.run_folder import PLAN, RunFolder
from heterps.runtime.scaling import Estimate, are_lost, used_units, with_limits
from heterps.runtime.snapshot import RunSnapshot, Snapshots
from heterps.runtime.specs import place_of
from heterps.runtime.stop import Stop, StoppedError

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class TrainResult:
    """What came of a run. ``metrics`` are those of the last validation, or progressive ones where
    there is none; ``samples_per_s`` is measured from the end of the first batch; ``stages`` are
    those of the last plan, predicted and measured."""

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
    failures: int = 0
    oversubscribed: bool = False
    simulated_samples_per_s: float | None = None
    stages: tuple[StageCheck, ...] = ()

    def as_document(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        stages = [stage.as_document() for stage in self.stages]
        return {**plain, "folder": str(self.folder), "stages": stages}


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
    make_engine: MakeEngine | None = None,
    *,
    start: RunSnapshot | None = None,
    stop: Stop | None = None,
    notice: Notice = lambda line: None,
) -> TrainResult:
    """Trains and leaves everything in the folder, from ``start`` on if there is one. When a process
    fails, all start again from the last snapshot, as long as that leads anywhere; ``notice`` gets
    the lines about it that a person should see. The engine is the job's, unless another is given.

    Raises what ended it; no process is left. After ``stop`` was asked, KeyboardInterrupt.
    """
    with folder.events() as events:
        about = {"steps": setup.layout.batches, "workers": len(setup.layout.workers)}
        events.write("resumed" if start else "started", step=start.step if start else 0, **about)
        run = _Run(setup, folder, events, report, stop or Stop(), notice)
        try:
            with engines_of(setup.job, make_engine) as make:
                result = run.to_the_end(make, start)
        except (KeyboardInterrupt, StoppedError):
            events.write("interrupted", step=run.step, snapshot=run.snapshot_step)
            raise KeyboardInterrupt from None
        except Exception as error:
            events.write("failed", error=str(error), step=run.step)
            raise
        folder.finish(result.as_document())
        events.write("ended", **result.as_document())
    return result


def demand_of(setup: Setup, cores: int | None = None) -> Demand:
    """How many cores the workers and servers of a run keep busy, of those that there are; by
    default this machine's."""
    stages = enumerate(setup.layout.stages)
    units = [(setup.type_of(number), stage.units) for number, stage in stages]
    servers = setup.job.servers.count * setup.job.servers.threads
    return Demand.of(units, servers, cores or len(os.sched_getaffinity(0)))


def simulated(setup: Setup) -> float | None:
    """Samples per second that the simulator expects; None without a profile."""
    if setup.plan is None or setup.problem is None:
        return None
    try:
        return simulate(setup.problem, setup.plan).samples_per_s
    except InputError:  # no run can be so, and this one is: the simulator knows less
        return None


def _checked(setup: Setup, generation: Generation) -> tuple[StageCheck, ...]:
    stages = [(stage.type, stage.units) for stage in setup.layout.stages]
    predicted = setup.plan.stages if setup.plan else None
    size = setup.job.workload.batch_size
    return check_stages(stages, predicted, generation.progress.measured(), size)


def _who(error: HeterPSError) -> str:
    return "the cluster" if isinstance(error, NoRoomError) else "a server or worker"


def _refitted(folder: Path) -> dict[str, Any]:
    from heterps.runtime.profiling.refit import refit_profile  # which runs trials with this module

    profile, _ = refit_profile(folder)
    return profile.as_document()


class _Run:
    """Generation after generation, until one gets to the end."""

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        events: EventLog,
        report: Report,
        stop: Stop,
        notice: Notice,
    ) -> None:
        self._setup = setup
        self._folder = folder
        self._events = events
        self._report = report
        self._stop = stop
        self._notice = notice
        self._failures: list[Failure] = []
        self._cores: int | None = None
        self._generation: Generation | None = None
        self._snapshots = Snapshots.of(folder.path, setup.job)
        self._elastic = Elastic(folder.path, setup, notice, _refitted)

    @property
    def step(self) -> int:
        return self._generation.progress.step if self._generation else 0

    @property
    def snapshot_step(self) -> int | None:
        """Where this coordinator's last whole snapshot was taken."""
        return self._generation.snapshots.last_written if self._generation else None

    def to_the_end(self, make_engine: MakeEngine, start: RunSnapshot | None) -> TrainResult:
        while True:
            goes_on = self._generation is not None or start is not None
            generation = self._new_generation(make_engine(self._folder.path), start)
            try:
                generation.run()
            except (ProcessError, ServerError, WorkerLostError) as error:
                self._go_on_or_raise(error)
            except NoRoomError as error:  # units have gone, or others were quicker to take them
                if not goes_on:
                    raise
                self._go_on_or_raise(error)
            except ReplanError as found:
                self._replan(found.proposal, found.estimate)
            except DamagedStartError as error:
                start = self._before(start, error)
                continue
            except HeterPSError as error:  # units have gone, and there is no plan without them
                if error is not self._elastic.error:
                    raise
                if self._stop.asked:
                    raise StoppedError from None
            else:
                return self._result(generation)
            start = self._snapshots.newest(self._warn)

    def _before(self, start: RunSnapshot | None, error: DamagedStartError) -> RunSnapshot | None:
        """In place of one whose files have the right sizes and the wrong contents, which those who
        load it have found. Raises what is wrong with one that is whole."""
        found = self._snapshots.newest(self._warn, thorough=True)
        if found is not None and start is not None and found.path == start.path:
            raise error.cause
        return found

    def _new_generation(self, engine: Engine, start: RunSnapshot | None) -> Generation:
        self._stop.armed = False
        self._snapshots.sweep()
        self._snapshots.set_aside_after(start.step if start else 0)
        before = self._generation
        self._elastic.there = engine.limits
        self._cores = engine.cores
        if before is not None:
            self._fit(engine)
        elif (demand := demand_of(self._setup, self._cores)).oversubscribed:
            self._events.write("oversubscribed", busy=demand.busy, cores=demand.cores)
        self._generation = Generation(
            self._setup,
            self._folder,
            engine,
            self._events,
            self._report,
            number=self._folder.next_generation(),
            start=start,
            seconds=before.progress.seconds if before else None,
            stop=self._stop,
            notice=self._notice,
            elastic=self._elastic,
        )
        return self._generation

    def _fit(self, engine: Engine) -> None:
        """To what is left of the cluster after a failure, by another plan if units of this one are
        gone. Where there is none, units may come for as long as the engine says. Raises what there
        is no plan for."""
        elastic = self._elastic
        elastic.settle()
        ends_at: float | None = None
        used = used_units(self._setup.job, self._stages)
        while are_lost(used, limits := elastic.limits()):
            elastic.plan_at_once(limits)
            if elastic.error is None:
                if elastic.proposal is not None:
                    self._replan(elastic.proposal, None)
                return
            if ends_at is None:
                ends_at = self._begin_to_wait(used, engine)
            if time.monotonic() >= ends_at:
                raise elastic.error
            engine.look_again(_LOOK_EVERY_S)
        elastic.error = None

    def _begin_to_wait(self, used: Mapping[str, int], engine: Engine) -> float:
        """Until when. What a person has taken away is not waited for."""
        wait_s = 0.0 if are_lost(used, self._elastic.allowed()) else engine.wait_s
        if wait_s:
            self._warn(f"waiting up to {wait_s:g} s for units to come; Ctrl-C ends the run")
        return time.monotonic() + wait_s

    def _go_on_or_raise(self, error: HeterPSError) -> None:
        process = error.name if isinstance(error, ProcessError) else _who(error)
        kind: Kind = error.kind if isinstance(error, ProcessError) else "lost"
        saved = self._generation.saved_step if self._generation else 0
        failure = Failure(process, kind, self.step, str(error), saved)
        self._failures.append(failure)
        retries = self._setup.job.recovery.retries
        decision = decide(self._failures, retries, spare=self._spare(process) is not None)
        self._events.write(
            "failure",
            step=self.step,
            process=process,
            how=kind,
            noticed=self._generation.noticed_at if self._generation else None,
            problem=str(error),
            action=decision.action,
            why=decision.why,
        )
        if self._stop.asked:
            raise StoppedError
        if not decision.again:
            raise error
        self._notice(f"{error}; starting again from the last snapshot ({decision.why})")
        lost = self._spare(process)
        if decision.action == "fewer" and lost is not None:
            self._elastic.plan({lost: used_units(self._setup.job, self._stages)[lost] - 1})
            if self._elastic.proposal is not None:
                self._replan(self._elastic.proposal, None)
            self._elastic.taken(self._setup)

    @property
    def _stages(self) -> Sequence[StageLayout]:
        return self._setup.layout.stages

    def _spare(self, process: str) -> str | None:
        """The type of a worker's unit, if its stages can do with one less."""
        place = place_of(process)
        if place is None:
            return None
        name = self._stages[place[0]].type
        own = [stage.units for stage in self._stages if stage.type == name]
        return name if sum(own) > len(own) else None

    def _replan(self, proposal: Proposal, estimate: Estimate | None) -> None:
        """The run goes on under another plan, from its last snapshot."""
        before = [stage.units for stage in self._stages]
        self._setup = setup = proposal.setup
        self._folder.write_json(PLAN, setup.plan_document())
        # With the limits that it was given: what is gone may be there when it is resumed.
        self._folder.write_job(with_limits(setup.job, self._elastic.most))
        self._elastic.taken(setup)
        now = [stage.units for stage in self._stages]
        about: dict[str, Any] = {"limits": dict(proposal.limits), "reason": proposal.reason}
        about |= {"units": now, "units_before": before}
        plan = setup.plan_document()["stages"]
        self._events.write("replanned", step=self.step, **about, stages=plan, **figures(estimate))
        gain = f": {estimate.text}" if estimate is not None else ""
        self._notice(f"another plan for {shown(proposal.limits)}{gain}")

    def _warn(self, line: str) -> None:
        self._events.write("warning", text=line)
        self._notice(line)

    def _result(self, generation: Generation) -> TrainResult:
        status, plan = generation.progress.status(), self._setup.plan
        return TrainResult(
            self._folder.path,
            status.step,
            status.samples,
            status.seconds,
            generation.progress.mean_samples_per_s,
            status.loss,
            generation.metrics(),
            generation.standing.best,
            status.dollars,
            plan.throughput if plan else None,
            generation.standing.stopped_early,
            len(self._failures),
            demand_of(self._setup, self._cores).oversubscribed,
            simulated(self._setup),
            _checked(self._setup, generation),
        )
