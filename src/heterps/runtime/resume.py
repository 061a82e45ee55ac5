"""A run folder that can go on: its job, its plan or another, and its last whole snapshot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from heterps.errors import InputError
from heterps.job.load import load_job, read_document
from heterps.job.spec import Job
from heterps.runtime.prepare import Setup, prepare
from heterps.runtime.run_folder import JOB, METRICS, PLAN, RunFolder
from heterps.runtime.slots import kinds_in
from heterps.runtime.snapshot import RunSnapshot, Snapshots

_INSTEAD = "or begin a new run with warm_start"


@dataclass(frozen=True)
class Resumed:
    setup: Setup
    folder: RunFolder
    start: RunSnapshot | None


@contextmanager
def resumed(
    path: Path,
    plan: Mapping[str, Any] | None = None,
    changes: Sequence[str] = (),
    warn: Callable[[str], None] = lambda line: None,
) -> Iterator[Resumed]:
    """Claims the run. ``plan`` and ``changes`` to the job are kept in the folder. Raises InputError
    for a run that has ended, that another process coordinates, or that they do not fit."""
    folder = RunFolder.open(path)
    folder.lock()
    with folder:
        ended, before = _result_of(folder), folder.job
        folder.identify()
        snapshots = Snapshots.of(folder.path, folder.job)
        folder.claim(snapshots, again=True)
        start = snapshots.newest(warn)
        if ended is not None and (start is None or not changes):
            raise _over(path, before, ended, start)
        job = load_job(folder.path / JOB, changes)
        later = Snapshots.of(folder.path, job)
        if plan is not None:
            job = job.model_copy(update={"plan": dict(plan)})
        lanes = int(start.about["lanes"]) if start else None
        arrivals = start.about.get("arrivals") if start and job.follows else None
        arrived = int(arrivals[-1]["samples"]) if arrivals else None
        trained = kinds_in(start.about, "the run") if start else None
        setup = prepare(job, plan, lanes=lanes, arrived=arrived, trained=trained)
        if ended is not None and not _asks_for_more(setup, before, ended):
            raise _over(path, before, ended, start)
        if start is not None:
            _check_samples(start, setup)
        if start is not None and not job.follows and start.step >= setup.layout.batches:
            problem = f"its snapshot is past the end: step {start.step} of {setup.layout.batches}"
            raise InputError(str(path), problem)
        if later.folder != snapshots.folder:  # no sooner: a change that is refused claims nothing
            later.claim()
            later.follow(snapshots)
        if plan is not None or changes:
            folder.write_json(PLAN, setup.plan_document())
            folder.write_job(setup.job)
        folder.reopen()
        yield Resumed(setup, folder, start)


def _result_of(folder: RunFolder) -> dict[str, Any] | None:
    """Of a run that has ended."""
    path = folder.path / METRICS
    return read_document(path) if path.exists() else None


def _asks_for_more(setup: Setup, before: Job, ended: Mapping[str, Any]) -> bool:
    """Of a followed folder only the person knows whether there is more."""
    if ended.get("stopped_early"):
        return setup.job.validation != before.validation
    return setup.job.follows or setup.layout.batches > ended["steps"]


def _over(
    path: Path, before: Job, ended: Mapping[str, Any], start: RunSnapshot | None
) -> InputError:
    """What to do instead: the model that is there is never replaced by one from the beginning."""
    epochs = before.workload.epochs
    more = f"--set workload.epochs={math.floor(epochs) + 1}"
    if start is None:
        warm = quote(f"warm_start={path.absolute()}")
        new = f"`heterps train JOB {more} --out DIR` begins anew, with --set {warm} from its model"
        return InputError(str(path), f"has ended, and has no snapshot to go on from: {new}")
    how = f"after {ended['steps']:,} batches (workload.epochs: {epochs:g})"
    if ended.get("stopped_early"):
        patience = before.validation.patience or 1
        how, more = f"early {how}", f"--set validation.patience={2 * patience}"
    return InputError(str(path), f"has ended {how}; to train on, say more, such as {more}")


def _check_samples(start: RunSnapshot, setup: Setup) -> None:
    """Raises InputError unless the batches before the snapshot's step hold what they held when
    they were trained on: the run would skip samples, or repeat them. Which samples of a followed
    folder that is, the recorded arrivals say, whatever is in it now. Snapshots of earlier versions
    have cursors alone.
    """
    plan, job, before = setup.layout.train, setup.job, start.about.get("data", {})
    micro_batches = before.get("micro_batches", plan.micro_batches)
    size = before.get("micro_batch_size", plan.micro_batch_size)
    if plan.micro_batches != micro_batches:
        raise _changed("workload.micro_batches", micro_batches, plan.micro_batches)
    if plan.micro_batch_size != size:
        raise _changed("workload.batch_size", size * micro_batches, job.workload.batch_size)
    if job.seed != start.about["seed"]:
        raise _changed("seed", start.about["seed"], job.seed)
    if job.follows:
        return
    samples = before.get("samples", plan.samples)
    if plan.samples != samples:
        problem = f"the run began with {samples} samples to train on, now there are {plan.samples}"
        same = "give it the same files and the same validation fraction"
        raise InputError("data.train", f"{problem}: {same}, {_INSTEAD}")
    first, cursors = plan.batch(start.step).first, start.about["cursors"]
    if list(plan.cursors(first)) != cursors:
        problem = f"step {start.step} began with micro-batch {sum(cursors)}, and now with {first}"
        same = "go on with the batches and the data that the run began with"
        raise InputError("workload.batch_size", f"{problem}: {same}, {_INSTEAD}")


def _changed(field: str, before: int, now: int) -> InputError:
    problem = f"the run began with {before}; with {now} it would skip samples, or repeat them"
    return InputError(field, f"{problem}: leave it, {_INSTEAD}")
