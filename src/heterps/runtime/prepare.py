"""Everything that can be checked before a process is started: model, data, plan, and how they fit.

Raises InputError, whose path names the field, for what does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from heterps.data.batch import Batch
from heterps.data.dataset import Dataset, Part, blank_batch
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.schema import SlotKind
from heterps.errors import InputError
from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.job.training import ValidationSpec
from heterps.models.chain import Chain
from heterps.models.trace import Trace, trace
from heterps.planning.plan import Plan, check_fits, read_plan, read_stages
from heterps.planning.problem import Problem
from heterps.runtime.building import build_model, table_spec
from heterps.runtime.layout import MIN_LANES, Layout, StageLayout
from heterps.runtime.metrics import chosen_metric, counts_for, task_of
from heterps.runtime.scaling import first_plan
from heterps.runtime.stage import Cut
from heterps.runtime.warm_start import check_tables, read_warm_start

_SAMPLES_TO_TRACE = 64
_FULL_ENOUGH = 0.6  # of a micro-batch's samples, on average
# What the parameter servers can do that an optimizer of dense weights does.
_SERVER_OPTIMIZERS = ("sgd", "adam", "adagrad")


@dataclass(frozen=True)
class Setup:
    """A job that can run. ``plan`` holds what is predicted, if there is a profile."""

    job: Job
    chain: Chain
    trace: Trace
    layout: Layout
    plan: Plan | None
    problem: Problem | None
    metric: str
    kinds: Mapping[str, SlotKind]  # what its slots hold

    @property
    def task(self) -> str | None:
        return task_of(self.chain)

    @property
    def warnings(self) -> list[str]:
        """What can run but is likely not meant."""
        short = _short_micro_batches(self.layout.train, self.job)
        return [*self.trace.warnings, *([short] if short else [])]

    def type_of(self, stage: int) -> ResourceType:
        name = self.layout.stages[stage].type
        return next(entry for entry in self.job.cluster.types if entry.name == name)

    @property
    def dollars_per_hour(self) -> float:
        """Of all units of the plan, the parameter servers, and what else the job names."""
        stages = self.layout.stages
        units = sum(s.units * self.type_of(n).price_per_hour for n, s in enumerate(stages))
        prices = {entry.name: entry.price_per_hour for entry in self.job.cluster.types}
        own = self.job.servers
        servers = own.count * prices[own.type] if own.type is not None else 0.0
        return units + servers + self.job.workload.overhead_per_hour

    def plan_document(self) -> dict[str, Any]:
        if self.plan is not None:
            return self.plan.as_document()
        stages = [
            {"first": s.first, "last": s.last, "type": s.type, "units": s.units}
            for s in self.layout.stages
        ]
        return {"method": "given", "stages": stages}


def prepare(
    job: Job,
    plan: Mapping[str, Any] | None = None,
    method: str = "auto",
    *,
    lanes: int | None = None,
    arrived: int | None = None,
    trained: Mapping[str, SlotKind] | None = None,
) -> Setup:
    """``plan`` is a document that counts before the job's own; without both one is made. ``lanes``
    is the number that a run which goes on has begun with, ``trained`` what slots held then.
    ``arrived`` are the samples that it was last given in a folder that it follows: the files of
    those may be gone, so none is opened."""
    if job.model is None:
        raise InputError("model", "is missing: name one of the zoo, or a file with a function")
    if job.data is None:
        raise InputError("data", "is missing: say what to train on")
    chain = build_model(job)
    job.tables_of(chain.tables)
    metric = chosen_metric(job.validation.metric, task_of(chain))
    warm = _check_warm_start(job, chain)
    kinds = warm if trained is None else trained
    binary = task_of(chain) == "binary"
    if arrived is not None:
        data, samples = None, arrived
        sample = blank_batch(job.data, _SAMPLES_TO_TRACE)
    else:
        data = Dataset.open(job.data, "train", job.folder, binary=binary, like=kinds)
        samples, sample, kinds = data.samples, _sample(data, job.seed), data.kinds
    job = job.with_samples(samples)
    train = _lane_plan(job, samples, lanes)
    sample = {name: _as(chain, tensor) for name, tensor in sample.items()}
    traced = trace(chain, sample, measured=counts_for(task_of(chain)).reads)
    problem, found, stages = _planned(job, chain, plan, method)
    layout = Layout(
        _with_cuts(stages, traced),
        train,
        _validation(job, data, lanes, kinds, binary=binary),
        _batches(job, train),
        job.workload.staleness,
        _layers_by_table(chain),
    )
    return Setup(job, chain, traced, layout, found, problem, metric, kinds)


def replanned(setup: Setup, job: Job, plan: Mapping[str, Any]) -> Setup:
    """The same run under another plan, with a job that differs in limits or profile: what was found
    out about its model and data stays, and no file is opened."""
    problem, found, stages = _planned(job, setup.chain, plan)
    layout = replace(setup.layout, stages=_with_cuts(stages, setup.trace))
    return replace(setup, job=job, layout=layout, plan=found, problem=problem)


def _lane_plan(job: Job, samples: int, given: int | None) -> LanePlan:
    lanes = given or max(MIN_LANES, *(entry.limit for entry in job.cluster.types))
    work = job.workload
    return LanePlan(samples, lanes, work.micro_batch_size, work.micro_batches)


def _short_micro_batches(plan: LanePlan, job: Job) -> str | None:
    """With fewer samples in a lane than a micro-batch takes, each is short, and so are batches."""
    mean = plan.samples / plan.per_epoch
    if job.follows or mean > _FULL_ENOUGH * plan.micro_batch_size:
        return None
    less = "workload.batch_size"
    if plan.lanes > MIN_LANES:
        less = "the largest cluster.types[].limit"
    return (
        f"a micro-batch holds {mean:,.0f} samples on average, not {plan.micro_batch_size:,}: each "
        f"is of one of {plan.lanes:,} lanes, in which there are {plan.samples // plan.lanes:,} "
        f"samples; lower {less}"
    )


def _batches(job: Job, plan: LanePlan) -> int:
    if job.follows:
        return 0  # until something has arrived
    # 0.07 × 100 is a little more than 7.
    batches = math.ceil(round(job.workload.epochs * plan.batches_per_epoch, 6))
    if batches < 1:
        raise InputError("workload.epochs", "expected more than 0, so that there is a batch")
    return batches


def _validation(
    job: Job,
    data: Dataset | None,
    lanes: int | None,
    kinds: Mapping[str, SlotKind],
    *,
    binary: bool,
) -> LanePlan | None:
    assert job.data is not None
    if job.data.validation is None:
        if job.validation != ValidationSpec():
            problem = "is missing, though the job says how to validate: give a path or a fraction"
            raise InputError("data.validation", problem)
        return None
    part: Part = "validation"
    if job.data.fraction is not None and data is not None:
        return _lane_plan(job, data.other(part).samples, lanes)
    held = Dataset.open(job.data, part, job.folder, binary=binary, like=kinds)
    return _lane_plan(job, held.samples, lanes)


def _sample(data: Dataset, seed: int) -> Batch:
    """The first samples, as many as it takes to see what the layers do."""
    small = LanePlan(data.samples, 1, min(_SAMPLES_TO_TRACE, data.samples))
    reader = LaneReader(data, Lanes(small, data.sizes, seed, shuffle=False), [0])
    return reader.micro_batch(0)


def _as(chain: Chain, tensor: torch.Tensor) -> torch.Tensor:
    weight = next(chain.parameters(), None)
    if weight is None or not tensor.is_floating_point():
        return tensor
    return tensor.to(weight.dtype)


def _planned(
    job: Job, chain: Chain, document: Mapping[str, Any] | None, method: str = "auto"
) -> tuple[Problem | None, Plan | None, list[StageLayout]]:
    problem = None if job.profile is None else Problem.of(job)
    found, stages = _plan(job, problem, chain, document, method)
    _check(job, stages)
    return problem, found, stages


def _plan(
    job: Job,
    problem: Problem | None,
    chain: Chain,
    document: Mapping[str, Any] | None,
    method: str,
) -> tuple[Plan | None, list[StageLayout]]:
    given = document if document is not None else job.plan
    if problem is None:
        if given is None:
            fix = "measure one with `heterps profile JOB`, name a file of one, or give a plan"
            raise InputError("profile", f"is missing, and so is a plan: {fix}")
        rows = read_stages(given, job.cluster.names, len(chain.layers))
        return None, [StageLayout(*row) for row in rows]
    _check_layers(problem, chain)
    if given is None:
        found = first_plan(job, method)
    else:
        found = read_plan(problem, given)
        check_fits(problem, found)
    return found, [StageLayout(s.first, s.last, s.type, s.units) for s in found.stages]


def _check_layers(problem: Problem, chain: Chain) -> None:
    profiled = [layer.name for layer in problem.profile.layers]
    if profiled == list(chain.names):
        return
    if len(profiled) != len(chain.names):
        raise InputError(
            "profile.layers",
            f"has {len(profiled)} layers, the model {len(chain.names)}: profile it anew",
        )
    at = next(i for i, name in enumerate(chain.names) if name != profiled[i])
    problem_said = f"is '{profiled[at]}', the model's is '{chain.names[at]}': profile it anew"
    raise InputError(f"profile.layers[{at}].name", problem_said)


def _check(job: Job, stages: Sequence[StageLayout]) -> None:
    types = {entry.name: entry for entry in job.cluster.types}
    for stage in stages if job.engine == "local" else ():
        check_device(types[stage.type])
    _check_units(job, stages)
    schedule = job.optimizer.schedule
    if job.follows and schedule.kind != "constant" and schedule.total is None:
        problem = "is missing: of data that arrive later nobody knows the last batch"
        raise InputError("optimizer.schedule.total", problem)
    if job.dense_sync == "server" and job.optimizer.name not in _SERVER_OPTIMIZERS:
        known = ", ".join(_SERVER_OPTIMIZERS)
        problem = f"the parameter servers, which dense_sync names, have no {job.optimizer.name}"
        raise InputError("optimizer.name", f"{problem} (they have: {known})")
    for option in ("momentum", "weight_decay") if job.dense_sync == "server" else ():
        if getattr(job.optimizer, option):
            problem = f"the parameter servers, which dense_sync names, have no {option}"
            raise InputError(f"optimizer.{option}", f"{problem}: use 0, or dense_sync: allreduce")
    if job.dense_sync == "server" and job.dtype != "float32":
        problem = f"the parameter servers, which dense_sync names, have no {job.dtype}"
        raise InputError("dtype", f"{problem}: use float32, or dense_sync: allreduce")


def _check_units(job: Job, stages: Sequence[StageLayout]) -> None:
    limits = {entry.name: entry.limit for entry in job.cluster.types}
    m = job.workload.micro_batches
    own = job.servers
    used: Counter[str] = Counter({own.type: own.count} if own.type is not None else {})
    for number, stage in enumerate(stages):
        where = f"plan.stages[{number}].units"
        used[stage.type] += stage.units
        if used[stage.type] > limits[stage.type]:
            total = f"{used[stage.type]} units of '{stage.type}', servers included"
            raise InputError(where, f"make {total}, more than its limit of {limits[stage.type]}")
        if stage.units > m and job.workload.staleness == 0:
            raise InputError(
                where,
                f"{stage.units} replicas share {m} micro-batches of a batch, so some would idle: "
                f"set workload.micro_batches to {stage.units} or more, or use a staleness",
            )


def _check_warm_start(job: Job, chain: Chain) -> Mapping[str, SlotKind]:
    """What slots held where it was trained."""
    found = read_warm_start(job, chain.state_dict(), chain.tables)
    if found is not None and found.tables is not None:
        specs = {name: table_spec(job, name, dim) for name, dim in chain.tables.items()}
        check_tables(found.tables, specs)
    return found.kinds if found is not None else {}


def check_device(entry: ResourceType) -> None:
    """Raises InputError for a type that this machine does not have."""
    kind = entry.device.partition(":")[0]
    if kind == "cpu":
        return
    module = getattr(torch, kind, None)
    if module is None or not hasattr(module, "is_available"):
        raise InputError(f"cluster.types.{entry.name}.device", f"torch knows no device '{kind}'")
    if not module.is_available():
        raise InputError(
            f"cluster.types.{entry.name}.device",
            f"this machine has no {kind} device for type '{entry.name}': leave the type out of "
            "the cluster (limit: 0), or give a plan without it",
        )


def _with_cuts(stages: Sequence[StageLayout], traced: Trace) -> tuple[StageLayout, ...]:
    cuts: list[Cut | None] = [None]
    for _, after in pairwise(stages):
        at = after.first
        cuts.append(Cut(traced.needed_after(at), traced.gradients_after(at)))
    cuts.append(None)
    return tuple(
        StageLayout(s.first, s.last, s.type, s.units, cuts[n], cuts[n + 1])
        for n, s in enumerate(stages)
    )


def _layers_by_table(chain: Chain) -> dict[str, int]:
    layers = chain.row_layers.values()
    return {name: sum(layer.table == name for layer in layers) for name in chain.tables}
