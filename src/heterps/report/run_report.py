"""A run in figures: predicted beside measured, what it cost, what went wrong, what bounds it.

All is read from the files of the run folder, while the run goes on, after it, or from a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heterps.errors import InputError
from heterps.events import read_events
from heterps.job.load import load_job
from heterps.job.spec import Job
from heterps.planning.measured import StageCheck, check_stages, error
from heterps.planning.plan import Plan, read_plan
from heterps.planning.problem import Problem
from heterps.planning.simulate import simulate
from heterps.report.bounds import Bound, PlacedStage, find_bound
from heterps.report.runs import (
    EVENTS,
    JOB,
    METRICS,
    RunSummary,
    is_run,
    number,
    read_json,
    summarise,
)
from heterps.report.story import Story

_PLAN = "plan.json"


@dataclass(frozen=True)
class RunReport:
    """Figures that are not known are None. ``layers`` names those of each stage, ``predicted`` is
    the formula's throughput, ``simulated`` the simulator's; dollars are per million samples."""

    summary: RunSummary
    layers: tuple[str, ...]
    stages: tuple[StageCheck, ...]
    predicted: float | None
    simulated: float | None
    samples_per_s: float | None
    floor: float | None
    dollars_per_million: float | None
    predicted_dollars_per_million: float | None
    bound: Bound | None
    story: Story

    @property
    def period_s(self) -> float | None:
        """Of a batch, by the formula."""
        found = [stage.predicted.period_s for stage in self.stages if stage.predicted is not None]
        return max(found, default=None)

    @property
    def errors(self) -> dict[str, float | None]:
        """Of formula and simulator, as shares of the measured throughput."""
        seen = self.samples_per_s
        return {"formula": error(self.predicted, seen), "simulator": error(self.simulated, seen)}

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        story, stages = self.story, zip(self.layers, self.stages, strict=True)
        return {
            **self.summary.as_document(),
            "stages": [{"layers": names, **stage.as_document()} for names, stage in stages],
            "throughput": {
                "formula": self.predicted,
                "simulated": self.simulated,
                "measured": self.samples_per_s,
                "floor": self.floor,
                "errors": self.errors,
            },
            "dollars_per_million": self.dollars_per_million,
            "predicted_dollars_per_million": self.predicted_dollars_per_million,
            "loss": {"first": story.first_loss, "last": story.last_loss},
            "snapshots": story.snapshots,
            "last_snapshot": story.last_snapshot,
            "stall_s": story.stall_s,
            "starts": story.starts,
            "replans": story.replans,
            "troubles": story.troubles,
            "oversubscribed": story.oversubscribed,
            "bound": self.bound and self.bound.as_document(),
        }


def read_report(path: Path | str) -> RunReport:
    """Raises InputError for what is no run folder."""
    path = Path(path)
    if not (path / JOB).is_file():
        raise InputError(str(path), f"is no run folder: it holds no {JOB}")
    if not is_run(path):
        raise InputError(str(path), f"is no run folder: it holds a {JOB} that no run has written")
    story, plan = Story(), _Planned(path)
    for event in read_events(path / EVENTS):
        story.take(event)
    rate, hourly = story.samples_per_s, story.dollars_per_hour
    return RunReport(
        summarise(path),
        tuple(plan.title(stage) for stage in plan.stages),
        plan.checked(story),
        plan.plan.throughput if plan.plan else None,
        plan.simulated(),
        rate,
        plan.job.workload.min_throughput or None if plan.job else None,
        hourly / 3600 / rate * 1e6 if hourly is not None and rate else None,
        plan.plan.breakdown.dollars_per_million_samples if plan.plan else None,
        plan.bound(story),
        story,
    )


@dataclass(frozen=True)
class _Stage:
    first: int
    last: int
    type: str
    units: int


class _Planned:
    """What the folder says of job and plan, as far as it can be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._document = read_json(path / _PLAN)
        held = self._document.get("stages")
        self.stages = [_stage(entry) for entry in held] if isinstance(held, list) else []

    @cached_property
    def job(self) -> Job | None:
        try:
            return load_job(self._path / JOB)
        except InputError:
            return None

    @cached_property
    def problem(self) -> Problem | None:
        try:
            return Problem.of(self.job) if self.job and self.job.profile is not None else None
        except InputError:
            return None

    @cached_property
    def plan(self) -> Plan | None:
        try:
            return read_plan(self.problem, self._document) if self.problem else None
        except InputError:
            return None

    def simulated(self) -> float | None:
        """What the run wrote down, or else found now."""
        known = number(read_json(self._path / METRICS).get("simulated_samples_per_s"))
        if known is not None or self.problem is None or self.plan is None:
            return None if known is None else float(known)
        try:
            return simulate(self.problem, self.plan).samples_per_s
        except InputError:
            return None

    def title(self, stage: _Stage) -> str:
        """Its layers."""
        if self.problem is None:
            many = "" if stage.first == stage.last else f"..{stage.last}"
            return f"{stage.first}{many}"
        names = [layer.name for layer in self.problem.profile.layers[stage.first : stage.last + 1]]
        return names[0] if len(names) == 1 else f"{names[0]}..{names[-1]} ({len(names)})"

    def checked(self, story: Story) -> tuple[StageCheck, ...]:
        measured = story.measured()
        if len(measured) != len(self.stages):
            measured = [None] * len(self.stages)
        places = [(stage.type, stage.units) for stage in self.stages]
        size = self.job.workload.batch_size if self.job else 1
        return check_stages(places, self.plan.stages if self.plan else None, measured, size)

    def bound(self, story: Story) -> Bound | None:
        lately = story.measured_lately()
        if len(lately) != len(self.stages) or None in lately:
            return None
        placed = [
            PlacedStage(
                f"stage {n} ({self.title(stage)} on {stage.type})",
                seen,
                self._shares(stage),
                self._has_rows(stage),
            )
            for n, (stage, seen) in enumerate(zip(self.stages, lately, strict=True))
            if seen is not None
        ]
        return find_bound(placed, self.job.workload.staleness if self.job else 0)

    def _shares(self, stage: _Stage) -> Sequence[tuple[str, float]]:
        if self.problem is None:
            return ()
        layers = self.problem.profile.layers[stage.first : stage.last + 1]
        own = [(layer.name, layer.on[stage.type].compute_s) for layer in layers]
        total = sum(seconds for _, seconds in own)
        return [(name, seconds / total) for name, seconds in own] if total > 0 else ()

    def _has_rows(self, stage: _Stage) -> bool:
        if self.problem is None:
            return True
        layers = self.problem.profile.layers[stage.first : stage.last + 1]
        return any(layer.kind == "embedding" for layer in layers)


def _stage(entry: Any) -> _Stage:
    held = entry if isinstance(entry, dict) else {}
    first, last, units = (int(number(held.get(key)) or 0) for key in ("first", "last", "units"))
    return _Stage(first, last, str(held.get("type")), units)
