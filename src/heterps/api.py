"""Planning from Python: files in, a plan out, with a clock."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heterps.errors import InputError
from heterps.job.load import load_job, read_document
from heterps.job.spec import Job
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers import Report, Stop, make_scheduler
from heterps.planning.schedulers.base import ignore, never

# Keys that only a problem file has, and those that only a job has.
_OF_PROBLEM = {"name", "note", "expect", "provision"}
_OF_JOB = set(Job.model_fields) - {"cluster", "profile", "workload"}


def plan(
    problem: Problem | Job | Path | str,
    method: str = "auto",
    seed: int | None = None,
    time_budget: float | None = None,
    progress: Report | None = None,
    *,
    stop: Stop = never,
) -> Plan:
    """The cheapest plan that a method finds for a problem, a job, or a file with one of them.

    ``seed`` is by default the job's, else 0. After ``time_budget`` seconds, or when ``stop``
    answers true, the best plan so far is returned; ``progress`` is called now and then. Raises
    InputError for a bad field or name, InfeasibleError where there is no plan.
    """
    problem, own_seed = _resolved(problem)
    scheduler = make_scheduler(method, seed=_checked_seed(own_seed if seed is None else seed))
    started = time.monotonic()  # loading what a method needs, torch for one, does not count
    timed_stop = _stop_after(started, time_budget, stop)
    found = scheduler.plan(problem, stop=timed_stop, report=progress or ignore)
    return replace(found, planning_s=time.monotonic() - started)


def _resolved(source: Problem | Job | Path | str) -> tuple[Problem, int]:
    if isinstance(source, Problem):
        return source, 0
    if isinstance(source, Job):
        return Problem.of(counted(source)), source.seed
    return read_problem(source)


def load_problem(path: Path | str) -> Problem:
    """The planning problem in a job file (YAML or JSON) or a problem file. Raises InputError with
    the file and the field.
    """
    return read_problem(path)[0]


def read_problem(
    path: Path | str, *, job: bool | None = None, changes: Sequence[str] = ()
) -> tuple[Problem, int]:
    """The problem in a file and the seed that goes with it. ``job`` says what the file holds; by
    default the keys at its top tell. ``changes`` of fields, as ``--set`` has them, are for jobs.
    Raises InputError with the file and the field.
    """
    path = Path(path)
    document = read_document(path)
    if job is None:
        job = not document.keys() & _OF_PROBLEM or bool(document.keys() & _OF_JOB)
    if changes and not job:
        raise InputError("--set", f"changes a job, and {path} is a problem file")
    read = load_job(path, changes) if job else None
    try:
        return (Problem.of(counted(read)), read.seed) if read else (Problem.parse(document), 0)
    except InputError as error:
        raise InputError(f"{path}: {error.path}", error.problem) from None


def counted(job: Job) -> Job:
    """The job with the number of its samples, which are counted if it does not say it. Raises
    InputError for data that cannot be read.
    """
    if job.data is None or job.workload.samples_per_epoch is not None:
        return job
    from heterps.data.dataset import Dataset

    return job.with_samples(Dataset.open(job.data, "train", job.folder).samples)


def _checked_seed(seed: int) -> int:
    if seed < 0:
        raise InputError("seed", f"expected 0 or more, got {seed}")
    return seed


def _stop_after(started: float, budget_s: float | None, stop: Stop) -> Stop:
    if budget_s is None:
        return stop
    if math.isnan(budget_s) or budget_s < 0:
        raise InputError("time_budget", f"expected 0 seconds or more, got {budget_s}")
    return lambda: stop() or time.monotonic() - started >= budget_s
