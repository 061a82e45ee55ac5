"""A short run of a plan on the real engine, to see how fast it is."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.data.follow import as_found
from heterps.errors import InputError
from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.job.training import SnapshotSpec, ValidationSpec
from heterps.runtime.emulation import Demand
from heterps.runtime.engines import MakeEngine
from heterps.runtime.prepare import prepare
from heterps.runtime.profiling.observed import StageSeconds, observe
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run

_LEAST_BATCHES, _MOST_MICRO_BATCHES = 5, 12


@dataclass(frozen=True)
class Trial:
    """What a run of some batches has shown; ``samples_per_s`` from the end of its first batch."""

    samples_per_s: float
    stages: Sequence[StageSeconds]
    oversubscribed: bool


def run_trial(
    job: Job,
    plan: Mapping[str, Any],
    batches: int,
    make_engine: MakeEngine | None = None,
    *,
    stop: Stop | None = None,
) -> Trial:
    """Trains ``batches`` batches of the job by a plan, or more where they take no time to speak of,
    and keeps nothing of it. What the job says
    of validation, snapshots and earlier runs does not count. Raises what a run raises."""
    setup = prepare(_of_batches(bare(job), plan, batches), plan)
    with tempfile.TemporaryDirectory(prefix="heterps-trial-") as path:
        with RunFolder.create(Path(path) / "run", setup.job, setup.plan_document()) as folder:
            result = train_run(setup, folder, make_engine=make_engine, stop=stop)
        try:
            seen = observe(folder.path)
        except InputError:
            seen = []  # it was over before there was anything to see
    if not seen:
        return run_trial(job, plan, 4 * batches, make_engine, stop=stop)
    return Trial(result.samples_per_s, seen, result.oversubscribed)


def bare(job: Job) -> Job:
    """The job with nothing but training in it."""
    assert job.data is not None
    changes = {
        "data": as_found(job.data, job.folder).model_copy(update={"validation": None}),
        "validation": ValidationSpec(k=job.validation.k),
        "snapshot": SnapshotSpec(every_s=0),
        "warm_start": None,
        "profile": None,
        "plan": None,
    }
    return job.model_copy(update=changes)


def for_trials(job: Job) -> Job:
    """Synchronous, with its number of micro-batches, or the largest that divides it and is not too
    long for a short run."""
    work = job.workload
    m = max(n for n in range(1, _MOST_MICRO_BATCHES + 1) if work.micro_batches % n == 0)
    size = work.micro_batch_size * m
    changed = {"batch_size": size, "micro_batches": m, "staleness": 0}
    return job.model_copy(update={"workload": work.model_copy(update=changed)})


def has_room(job: Job, units: Sequence[tuple[ResourceType, int]], cores: int) -> bool:
    """Whether so many units of types are there beside the servers, and so many cores are enough for
    them to be no hindrance to each other."""
    servers = job.servers
    taken = Counter({servers.type: servers.count})
    for entry, count in units:  # a type may have several stages
        taken[entry.name] += count
    there = all(taken[entry.name] <= entry.limit for entry, _ in units)
    return there and not Demand.of(units, servers.count * servers.threads, cores).oversubscribed


def batches_in(seconds: float, batch_s: float) -> int:
    """How many a trial of about so many seconds has, enough of them to say something."""
    return max(_LEAST_BATCHES, round(seconds / batch_s))


def _of_batches(job: Job, plan: Mapping[str, Any], batches: int) -> Job:
    per_epoch = prepare(job, plan).layout.train.batches_per_epoch
    changed = job.workload.model_copy(update={"epochs": (batches - 0.5) / per_epoch})
    return job.model_copy(update={"workload": changed})


def whole_model(layers: int, type_name: str, units: int) -> dict[str, Any]:
    """A plan of one stage, as a document."""
    return {"stages": [{"first": 0, "last": layers - 1, "type": type_name, "units": units}]}
