"""When the units that a run may use have changed: another plan, and whether it pays. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heterps.errors import InfeasibleError, InputError
from heterps.job.spec import Job
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers import make_scheduler
from heterps.runtime.layout import StageLayout

_REACHABLE = 0.999  # of the largest throughput, where the floor is out of reach


@dataclass(frozen=True)
class Estimate:
    """The rest of a run under its plan and under another one."""

    samples_left: float
    samples_per_s: float
    dollars_per_hour: float
    new_samples_per_s: float
    new_dollars_per_hour: float
    restart_s: float
    floor: float = 0.0  # samples per second that the run should have

    @property
    def saved_s(self) -> float:
        """What is left then, the restart included, against what is left now."""
        return self._left_s - self._new_left_s

    @property
    def saved_dollars(self) -> float:
        now, then = self.dollars_per_hour / 3600, self.new_dollars_per_hour / 3600
        return self._left_s * now - self._new_left_s * then

    @property
    def pays(self) -> bool:
        """A run that is below its floor should get there sooner, any other one cost less."""
        if self.samples_per_s < self.floor * _REACHABLE:
            return self.new_samples_per_s > self.samples_per_s and self.saved_s > 0
        keeps = self.new_samples_per_s >= self.floor * _REACHABLE
        return keeps and self.saved_dollars > 0

    @property
    def text(self) -> str:
        return (
            f"{self.new_samples_per_s:,.0f} samples/s instead of {self.samples_per_s:,.0f}, "
            f"{self._saved}, a restart of {self.restart_s:.0f} s included"
        )

    @property
    def _saved(self) -> str:
        time, money = f"{abs(self.saved_s):,.0f} s", f"${abs(self.saved_dollars):.5f}"
        if self.saved_s < 0:
            rest = f"more and saves {money}" if self.saved_dollars >= 0 else f"and {money} more"
            return f"takes {time} {rest}"
        costs = f"costs {money} more" if self.saved_dollars < 0 else money
        return f"saves {time} and {costs}"

    @property
    def _left_s(self) -> float:
        return self.samples_left / self.samples_per_s

    @property
    def _new_left_s(self) -> float:
        return self.samples_left / self.new_samples_per_s + self.restart_s


def used_units(job: Job, stages: Sequence[StageLayout]) -> Counter[str]:
    """By type, parameter servers included."""
    own = job.servers
    used: Counter[str] = Counter({own.type: own.count} if own.type is not None else {})
    for stage in stages:
        used[stage.type] += stage.units
    return used


def are_lost(used: Mapping[str, int], limits: Mapping[str, int]) -> bool:
    """Whether units are used that are no longer there."""
    return any(used.get(name, 0) > limit for name, limit in limits.items())


def with_limits(job: Job, limits: Mapping[str, int]) -> Job:
    return job.model_copy(update={"cluster": job.cluster.with_limits(dict(limits))})


def plan_again(job: Job, method: str = "auto") -> Plan:
    """The best plan within the job's limits; if none keeps its floor, the fastest. Raises
    InfeasibleError when there is none at all."""
    problem = Problem.of(job)
    scheduler = make_scheduler(method, seed=job.seed)
    try:
        return scheduler.plan(problem)
    except InfeasibleError as error:
        if error.reason != "throughput" or not error.max_throughput:
            raise
        floor = error.max_throughput * _REACHABLE
    changed = job.workload.model_copy(update={"min_throughput": floor})
    return scheduler.plan(Problem.of(job.model_copy(update={"workload": changed})))


def plan_that_runs(job: Job, method: str = "auto") -> Plan:
    """The same, of stages that are no wider than a batch has micro-batches, which is what a
    synchronous run can use."""
    plan = plan_again(job, method)
    return plan_again(narrow(job), method) if too_wide(job, plan) else plan


def first_plan(job: Job, method: str = "auto") -> Plan:
    """The best plan that a run can carry out: a stage of a synchronous one is no wider than a batch
    has micro-batches. Raises InfeasibleError."""
    plan = make_scheduler(method, seed=job.seed).plan(Problem.of(job))
    if not too_wide(job, plan):
        return plan
    try:
        return make_scheduler(method, seed=job.seed).plan(Problem.of(narrow(job)))
    except InfeasibleError as error:
        widest = max(stage.units for stage in plan.stages)
        m = job.workload.micro_batches
        fix = f"set it to {widest} or more, or use a staleness"
        said = (
            f"{error.detail}, as stages have at most workload.micro_batches ({m}) replicas: {fix}"
        )
        raise InfeasibleError(error.reason, said, error.max_throughput) from None


def too_wide(job: Job, plan: Plan) -> bool:
    """Whether replicas would get no micro-batch of a batch."""
    work = job.workload
    return not work.staleness and any(stage.units > work.micro_batches for stage in plan.stages)


def narrow(job: Job) -> Job:
    """With limits within which no stage is too wide."""
    own, most = job.servers, job.workload.micro_batches
    limits = {
        entry.name: min(entry.limit, most + (own.count if own.type == entry.name else 0))
        for entry in job.cluster.types
    }
    return with_limits(job, limits)


def fitted(job: Job, stages: Sequence[StageLayout]) -> dict[str, Any]:
    """The stages of a plan for which there is no profile with as many units as there are, as a
    document. The widest give up theirs first. Raises InputError when a stage would have none."""
    limits = {entry.name: entry.limit for entry in job.cluster.types}
    units = [stage.units for stage in stages]
    own = job.servers
    for name, limit in limits.items():
        mine = [n for n, stage in enumerate(stages) if stage.type == name]
        room = limit - (own.count if own.type == name else 0)
        while mine and sum(units[n] for n in mine) > room:
            widest = max(mine, key=lambda n: units[n])
            if units[widest] == 1:
                problem = f"{limit} units of '{name}' are too few for {len(mine)} stages"
                raise InputError(f"cluster.types.{name}.limit", problem)
            units[widest] -= 1
    rows = [
        {"first": stage.first, "last": stage.last, "type": stage.type, "units": count}
        for stage, count in zip(stages, units, strict=True)
    ]
    return {"method": "fitted", "stages": rows}
