"""A run folder that can go on: its job, its plan or another, and its last whole snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.errors import InputError
from heterps.job.load import load_job
from heterps.runtime.prepare import Setup, prepare
from heterps.runtime.run_folder import JOB, METRICS, PLAN, RunFolder
from heterps.runtime.snapshot import RunSnapshot, Snapshots


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
        if (folder.path / METRICS).exists() and not changes:
            problem = "has ended; to train on, say more, such as --set workload.epochs=2"
            raise InputError(str(path), problem)
        snapshots = Snapshots.of(folder.path, folder.job)
        start = snapshots.newest(warn)
        job = load_job(folder.path / JOB, changes)
        later = Snapshots.of(folder.path, job)
        if later.folder != snapshots.folder:
            later.claim()
        if plan is not None:
            job = job.model_copy(update={"plan": dict(plan)})
        lanes = int(start.about["lanes"]) if start else None
        setup = prepare(job, plan, lanes=lanes)
        follows = job.data is not None and job.data.follow is not None
        if start is not None and not follows and start.step >= setup.layout.batches:
            problem = f"its snapshot is past the end: step {start.step} of {setup.layout.batches}"
            raise InputError(str(path), problem)
        if plan is not None or changes:
            folder.write_json(PLAN, setup.plan_document())
            folder.write_job(setup.job)
        yield Resumed(setup, folder, start)
